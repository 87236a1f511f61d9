package replog_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/replog"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

// TestBytesThatAreNotCommittedAreBounded: what is proposed weighs until it is durable, and then there is room again.
func TestBytesThatAreNotCommittedAreBounded(t *testing.T) {
	r := openReplica(t, 1, []uint64{1}, replogtest.NewDisk(), nil, 0)
	var err error
	r.core, err = replog.New(replog.Config{Replica: 1, Voters: []uint64{1}, Applied: r.index, Log: r.log, MaxUncommittedBytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.core.Campaign(); err != nil {
		t.Fatal(err)
	}
	r.settle()
	first, second := strings.Repeat("a", 60), strings.Repeat("b", 60)
	if err := r.core.Propose([]byte(first)); err != nil {
		t.Fatal(err)
	}
	r.step()
	if err := r.core.Propose([]byte(second)); !errors.Is(err, replog.ErrLogFull) {
		t.Errorf("60 bytes on top of 60 of 100: %v", err)
	}
	r.settle()
	if err := r.core.Propose([]byte(second)); err != nil {
		t.Errorf("the next proposal: %v", err)
	}
	r.settle()
	if want := []string{first, second}; !slices.Equal(r.applied, want) {
		t.Errorf("applied %q", r.applied)
	}
}
