package node

import "sync"

// asks are the questions of this node to others that wait for their answers.
type asks[A any] struct {
	// Guards the fields below. It is a leaf.
	mu sync.Mutex
	// The last number that was given. It begins at random, so that no answer to an earlier run of this node is taken
	// for one to this.
	last uint64
	// The questions that wait, by number: the answer of another node names it.
	waits map[uint64]asked[A]
}

// asked is one question that waits for its answer.
type asked[A any] struct {
	// The replica that was asked: an answer of another one is passed over.
	to uint64
	// Gets at most one answer, which it has room for: no sender waits.
	answer chan A
}

// begin takes a number for one question.
func (a *asks[A]) begin(to uint64) (id uint64, answer chan A) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waits == nil {
		a.waits = make(map[uint64]asked[A])
	}
	a.last++
	answer = make(chan A, 1)
	a.waits[a.last] = asked[A]{to, answer}
	return a.last, answer
}

// forget drops a question that waits no more. Its answer may still come, and finds nothing.
func (a *asks[A]) forget(id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waits, id)
}

// end gives an answer to whom it belongs, once.
func (a *asks[A]) end(from, id uint64, answer A) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w, ok := a.waits[id]; ok && w.to == from {
		delete(a.waits, id)
		w.answer <- answer
	}
}
