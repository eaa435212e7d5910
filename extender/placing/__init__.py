"""Answers the scheduler: filters and scores nodes, picks victims of preemption, and keeps decisions to explain them."""
