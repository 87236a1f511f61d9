package gitobj

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// A pack that cannot be opened because too many files are open is not damaged: the caller is told to retry, and finds the
// object then.
func TestAPackThatCannotBeOpenedNowIsNotDamaged(t *testing.T) {
	for _, cause := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		r := newRig(t)
		s := newSource(t)
		id := s.commit("a", "content")
		if err := r.push(s.pack("--all"), []core.ObjectID{id}); err != nil {
			t.Fatal(err)
		}
		r.restart() // nothing is open, nothing remembered
		err := fmt.Errorf("open: %w", cause)
		r.disk.starved.Store(&err)
		for _, act := range []struct {
			name string
			do   func() error
		}{
			{"lookup", func() error { _, _, err := r.Lookup(t.Context(), place, id); return err }},
			{"ancestry", func() error {
				_, err := r.Ancestry(t.Context(), place, place.Partition.Tenant, []core.Move{{From: id, To: id}})
				return err
			}},
			{"prepare", func() error { return r.Prepare(t.Context(), place) }},
		} {
			got := act.do()
			f, ok := errors.AsType[core.Unavailable](got)
			if got != nil && (!ok || f.Limit != "descriptors") {
				t.Errorf("%v, %s: %v", cause, act.name, got)
			}
			if act.name != "ancestry" && got == nil {
				t.Errorf("%v, %s: no error", cause, act.name)
			}
		}
		if n := r.Stats().Damaged; n != 0 {
			t.Errorf("%v: %d packs count as damaged", cause, n)
		}
		r.disk.starved.Store(nil)
		if kind, _, err := r.Lookup(t.Context(), place, id); err != nil || kind != core.ObjectCommit {
			t.Errorf("%v, afterwards: %v, %v", cause, kind, err)
		}
	}
}

func TestPacksBeyondThoseThatMayBeOpenAreRefusedWhileAllAreInUse(t *testing.T) {
	r := newRig(t, func(o *Options) { o.OpenPacks = 2 })
	s := newSource(t)
	var refs []packRef
	for i := range 3 {
		id := s.commit("a", fmt.Sprint("content ", i))
		if err := r.push(s.pack("main"), []core.ObjectID{id}); err != nil {
			t.Fatal(err)
		}
	}
	lines, _, err := r.m.Packs(t.Context(), place)
	if err != nil || len(lines) != 3 {
		t.Fatal(lines, err)
	}
	for _, l := range lines {
		refs = append(refs, packRef{at: place, digest: l.Digest})
	}
	var held []*openPack
	for _, ref := range refs[:2] {
		p, err := r.open.acquire(ref)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, p)
	}
	if _, err := r.open.acquire(refs[2]); !errors.Is(err, errDescriptors) {
		t.Errorf("a third: %v", err)
	}
	r.open.release(held[0])
	p, err := r.open.acquire(refs[2])
	if err != nil {
		t.Fatalf("after one was given back: %v", err)
	}
	r.open.release(p)
	r.open.release(held[1])
	if n := len(r.open.packs); n > 2 {
		t.Errorf("%d packs are open", n)
	}
}
