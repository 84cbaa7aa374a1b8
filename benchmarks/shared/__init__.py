"""What benchmarks have in common: arguments, tables, records, timing, training."""
