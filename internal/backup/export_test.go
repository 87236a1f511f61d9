package backup

// ListOf has a writer list so many files in one list.
func (w *Writer) ListOf(n int) { w.perList = n }
