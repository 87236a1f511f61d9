package check

// PairRead is one look at two things that one commit changes: a task that it completes and a key that it puts, neither of
// which goes back. The one that was read first is older, or as old.
type PairRead struct {
	ID             string
	TaskFirst      bool
	Completed, Put bool
}

// BothOrNeither judges reads made while a run goes on: what one commit changes becomes visible together. Rules:
// completed_without_key, key_without_completion.
func BothOrNeither(reads []PairRead) *Report {
	r := NewReport("both_or_neither")
	for _, p := range reads {
		r.Checked++
		switch {
		case p.Completed && p.Put:
			r.Counts["both"]++
		case p.TaskFirst && p.Completed:
			r.Violate("completed_without_key", "task %s was read as completed, and its key after that as absent", p.ID)
		case !p.TaskFirst && p.Put:
			r.Violate("key_without_completion", "the key of task %s was read, and the task after that as not completed", p.ID)
		case p.Completed || p.Put:
			r.Counts["between"]++ // the commit came between the two reads
		default:
			r.Counts["neither"]++
		}
	}
	return r.Done()
}
