"""Workers on paper whose jobs contend: cores are shared, memory runs out, jobs are moved, and learn by work done."""
