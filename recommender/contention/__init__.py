"""Jobs that slow each other down: who is moved to which worker, and who gets how much of it (SpeCon, FlowCon, ours)."""
