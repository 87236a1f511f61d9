package core

// seenBytes bounds what one lease of a SessionLost takes in an entry.
const seenBytes = holdBytes + varintBytes

// sessionLost writes the session, and its leases as a count and the items.
func (w *writer) sessionLost(op *SessionLost) {
	w.id(TaskID(op.Session))
	w.uint(uint64(len(op.Leases)))
	for _, l := range op.Leases {
		w.hold(TaskHold{l.Task, l.Token})
		w.int(int64(l.Until))
	}
}

// sessionLost reads what the writer's sessionLost wrote.
func (r *reader) sessionLost() *SessionLost {
	op := &SessionLost{Session: SessionID(r.id())}
	if n := r.count(18); n > 0 { // an id of 16 bytes, a token and a time
		op.Leases = make([]SeenLease, n)
		for i := range op.Leases {
			h := r.hold()
			op.Leases[i] = SeenLease{Task: h.Task, Token: h.Token, Until: ShardTime(r.int())}
		}
	}
	return op
}
