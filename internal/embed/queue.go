package embed

// tenantState is what an embedder holds of one tenant, so that texts of one that fail, or many of them, do not keep others waiting.
// It stays: a server has as many as it has tenants.
type tenantState struct {
	name     string
	breaker  breaker
	pending  []*call // that wait for a request
	bytes    int64   // of their texts
	waiting  int     // callers with a call of their own
	inFlight int
	queued   bool // it is among those whose turn comes
}

// tenant finds the state of a tenant, and makes it. The mutex is held.
func (e *Embedder) tenant(name string) *tenantState {
	t := e.tenants[name]
	if t == nil {
		t = &tenantState{name: name}
		e.tenants[name] = t
	}
	return t
}

// partOf is how much of a bound one tenant may take: all of it as long as it is the only one, else all but a part. The mutex is held.
func (e *Embedder) partOf(all, others int) int {
	if len(e.tenants) < 2 {
		return all
	}
	return max(1, all-others)
}

// batch is how many texts a request has at most, so that their vectors fit into what is read of an answer.
func (e *Embedder) batch() int {
	dim := e.KnownDim()
	if dim == 0 {
		return e.o.Batch
	}
	return max(1, min(e.o.Batch, (maxAnswer-answerFrame)/(dim*numberBytes)))
}

// take takes the next texts to ask for: of one tenant, tenants in turn, and of those that may have one more request. Unless now is
// set, it takes what fills a request. Nil: there are none. The mutex is held.
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
