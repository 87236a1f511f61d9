package history

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
)

func TestRefusalsOfTheLastDayAreCountedByTheBoundsName(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r, now := NewRefusals(), 90*time.Minute
	add := func(namespace core.NamespaceID, name string) {
		r.Add(core.Bound{Tenant: 1, Namespace: namespace, Name: name}, now, begin.Add(now))
	}
	expect := func(what string, namespace core.NamespaceID, want ...core.Refused) {
		t.Helper()
		if got, partial := r.Of(1, namespace, now); partial || !slices.Equal(got, want) {
			t.Errorf("%s: %v, partial %v; want %v", what, got, partial, want)
		}
	}
	expect("nothing was refused", 7)
	first := begin.Add(now)
	add(7, "key_bytes")
	add(7, "key_bytes")
	add(7, "crons")
	add(0, "key_bytes")
	expect("of the namespace", 7, core.Refused{Name: "crons", Count: 1, Last: first}, core.Refused{Name: "key_bytes", Count: 2, Last: first})
	expect("of the tenant", 0, core.Refused{Name: "key_bytes", Count: 1, Last: first})
	expect("of another namespace", 8)
	now += 23 * time.Hour
	add(7, "key_bytes")
	second := begin.Add(now)
	expect("within a day", 7, core.Refused{Name: "crons", Count: 1, Last: first}, core.Refused{Name: "key_bytes", Count: 3, Last: second})
	now += 90 * time.Minute
	expect("a day after the first ones", 7, core.Refused{Name: "key_bytes", Count: 1, Last: second})
	now += 23 * time.Hour
	expect("a day after the last one", 7)
	add(7, "key_bytes")
	expect("again", 7, core.Refused{Name: "key_bytes", Count: 1, Last: begin.Add(now)})
	now += 1000 * time.Hour
	add(7, "key_bytes")
	expect("long after", 7, core.Refused{Name: "key_bytes", Count: 1, Last: begin.Add(now)})
}

func TestRefusalsOfMoreBoundsThanHaveRoomAreCountedTogether(t *testing.T) {
	r := NewRefusals()
	add := func(n int, at time.Duration) {
		r.Add(core.Bound{Tenant: 1, Namespace: core.NamespaceID(n), Name: "crons"}, at, time.Time{})
	}
	for n := 1; n <= MaxBounds; n++ {
		add(n, time.Hour)
	}
	if _, partial := r.Of(1, 1, time.Hour); partial {
		t.Error("all of them have room")
	}
	for n := range 10 {
		add(MaxBounds+1+n, time.Hour)
	}
	if got, partial := r.Of(1, MaxBounds+1, time.Hour); len(got) != 0 || !partial || len(r.rows) != MaxBounds {
		t.Errorf("one more: %v, partial %v, %d rows", got, partial, len(r.rows))
	}
	if got := fmt.Sprint(r.rest.sum(2)); got != "10" {
		t.Errorf("the rest: %s", got)
	}
	add(1, time.Hour)
	if got, _ := r.Of(1, 1, time.Hour); len(got) != 1 || got[0].Count != 2 {
		t.Errorf("one that has room: %v", got)
	}
	// A day later they have refused nothing, and make room.
	add(MaxBounds+1, 26*time.Hour)
	if got, partial := r.Of(1, MaxBounds+1, 26*time.Hour); len(got) != 1 || partial || len(r.rows) != 1 {
		t.Errorf("a day later: %v, partial %v, %d rows", got, partial, len(r.rows))
	}
}
