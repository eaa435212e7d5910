"""Resources kept in mind: listed, watched, and listed again when the thread is lost."""
