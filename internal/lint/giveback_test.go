package lint

import "testing"

// plantedTurns holds one violation of each kind, what looks like one, and one in a package above which nothing recovers.
const plantedTurns = `
-- internal/other/other.go --
package other
func Work() {}
-- internal/core/core.go --
package core
func Fact() {}
-- internal/api/turn.go --
package api
import (
	"sync"
	"example.com/m/internal/core"
	"example.com/m/internal/other"
)
type backend interface{ Search() }
type room struct{ mu sync.Mutex; n int }
func (r *room) enter() (leave func(), err error) { return func() {}, nil }
func (r *room) take(n int) {}
func (r *room) give(n int) {}
type server struct { b backend; r room; mu sync.RWMutex; hook func() }
func (s *server) turn() {
	leave, err := s.r.enter()
	if err != nil {
		return
	}
	s.b.Search()
	leave()
}
func (s *server) taken() {
	s.r.take(3)
	other.Work()
	s.r.give(3)
}
func (s *server) locked() {
	s.mu.RLock()
	s.hook()
	s.mu.RUnlock()
}
func (s *server) inner() { s.b.Search() }
func (s *server) indirect() {
	s.mu.Lock()
	s.inner()
	s.mu.Unlock()
}
func (s *server) inGoroutine() {
	go func() {
		s.mu.Lock()
		s.hook()
		s.mu.Unlock()
	}()
}
func (s *server) good(f func()) {
	leave, err := s.r.enter()
	if err != nil {
		return
	}
	defer leave()
	s.r.take(3)
	defer s.r.give(3)
	s.mu.Lock()
	core.Fact()
	s.r.n = len("four")
	s.mu.Unlock()
	s.mu.RLock()
	defer func() { s.mu.RUnlock() }()
	s.b.Search()
	f()
	func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hook()
	}()
}
-- internal/store/store.go --
package store
import "sync"
type store struct { mu sync.Mutex; hook func() }
func (s *store) locked() {
	s.mu.Lock()
	s.hook()
	s.mu.Unlock()
}
`

func TestWhatIsGivenBackOutsideDeferBelowARecoverIsFound(t *testing.T) {
	found, err := checkGiveBack(plant(t, plantedTurns), root)
	if err != nil {
		t.Fatal(err)
	}
	const say = " outside defer, after line "
	var planted []finding
	for _, f := range found {
		if f.file != "internal/lint/giveback.go" { // which names functions of this repository
			planted = append(planted, f)
		}
	}
	wantFindings(t, planted,
		"internal/api/turn.go:19: gives back by leave()"+say+"18, which can panic below a recover",
		"internal/api/turn.go:24: gives back by s.r.give()"+say+"23, which can panic below a recover",
		"internal/api/turn.go:29: gives back by s.mu.RUnlock()"+say+"28, which can panic below a recover",
		"internal/api/turn.go:35: gives back by s.mu.Unlock()"+say+"34, which can panic below a recover",
		"internal/api/turn.go:41: gives back by s.mu.Unlock()"+say+"40, which can panic below a recover",
	)
	if len(found)-len(planted) != len(givenBackByHand) {
		t.Error("exceptions for functions that are not there were passed over")
	}
}
