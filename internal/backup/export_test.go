package backup

// ListOf sets how many files a writer puts into one list.
func (w *Writer) ListOf(n int) { w.perList = n }
