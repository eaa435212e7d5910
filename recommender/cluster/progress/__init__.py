"""The progress of trainings as pods show it: by annotations, and in their logs."""
