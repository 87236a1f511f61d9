package check

// NonInterference judges that a tenant cannot see another. The first ledger holds tenant B's calls in a run without tenant A;
// the second holds the same calls, in the same order, while A was at work. What B sees must be equal: outcome, code, replay,
// value, answer, token and attempt. Times, indexes and stamps may differ, because a shard is shared.
// Rules: length, differs.
func NonInterference(alone, beside []Call) *Report {
	r := NewReport("non_interference")
	if len(alone) != len(beside) {
		r.Violate("length", "%d calls alone, %d together with another tenant", len(alone), len(beside))
	}
	for i := range min(len(alone), len(beside)) {
		r.Checked++
		a, b := seen(alone[i]), seen(beside[i])
		if a != b {
			r.Violate("differs", "call %d: alone %+v, together with another tenant %+v", i, a, b)
		}
	}
	return r.Done()
}

// seen is a call without what may differ between two runs.
func seen(c Call) Call {
	c.Invoke, c.Return, c.Index, c.Stamp, c.Node, c.Clock = 0, 0, 0, 0, 0, ""
	return c
}
