package embed

// tenantState is what an embedder holds of one tenant, so that many texts of one tenant, or texts
// that fail, do not keep others waiting. It is never removed: a server has as many as it has
// tenants. The embedder's mu guards all fields; the breaker has its own.
type tenantState struct {
	name    string
	breaker breaker
	// Calls that wait for a request, the oldest first.
	pending []*call
	// The bytes of their texts.
	bytes int64
	// Callers that wait for a call of their own.
	waiting int
	// Requests under way.
	inFlight int
	// It is in turns.
	queued bool
}

// tenant returns the state of a tenant, and makes it if it is new. The caller holds mu.
func (e *Embedder) tenant(name string) *tenantState {
	t := e.tenants[name]
	if t == nil {
		t = &tenantState{name: name}
		e.tenants[name] = t
	}
	return t
}

// partOf returns how much of a bound one tenant may use: all of it as long as it is the only
// tenant, else all but the part that is kept for others. The caller holds mu.
func (e *Embedder) partOf(all, others int) int {
	if len(e.tenants) < 2 {
		return all
	}
	return max(1, all-others)
}

// batch returns the most texts of one request, so that their vectors fit into the bound of an
// answer.
func (e *Embedder) batch() int {
	dim := e.KnownDim()
	if dim == 0 {
		return e.o.Batch
	}
	return max(1, min(e.o.Batch, (maxAnswer-answerFrame)/(dim*numberBytes)))
}

// take removes the next batch from the queue: texts of one tenant, tenants in turn, and only of a
// tenant that may have another request in flight. Unless now is set, it takes a full batch only. It
// returns nil if there is none. The caller holds mu.
func (e *Embedder) take(now bool) (*tenantState, []*call) {
	most, full := e.partOf(e.o.InFlight, 1), e.batch()
	for i, t := range e.turns {
		if t.inFlight >= most || !now && len(t.pending) < full {
			continue
		}
		e.turns = append(e.turns[:i:i], e.turns[i+1:]...)
		n := min(len(t.pending), full)
		batch := append([]*call(nil), t.pending[:n]...)
		t.pending = append(t.pending[:0], t.pending[n:]...)
		clear(t.pending[len(t.pending):cap(t.pending)])
		for _, k := range batch {
			t.bytes -= int64(len(k.text))
			e.bytes -= int64(len(k.text))
		}
		if t.queued = len(t.pending) > 0; t.queued {
			e.turns = append(e.turns, t)
		}
		return t, batch
	}
	return nil, nil
}
