package replog

// Promised is what a shard's log remembers of elections and commits.
type Promised struct {
	Term, Vote uint64
	Commit     uint64 // entries up to here are known to be committed; more may be
}

// PromisedIn reads the hard state of a shard as the log has it; zeros without any.
func PromisedIn(hard []byte) (Promised, error) {
	if hard == nil {
		return Promised{}, nil
	}
	h, err := decodeHardState(hard)
	if err != nil {
		return Promised{}, err
	}
	return Promised{Term: h.GetTerm(), Vote: h.GetVote(), Commit: h.GetCommit()}, nil
}
