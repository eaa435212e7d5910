"""What everything else rests on: units, records, errors, files, sockets, arrays by slot, and compilation."""
