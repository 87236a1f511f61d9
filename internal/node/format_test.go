package node

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/replog/replogtest"
)

// A new cluster has no older program to go back to: its first entry raises the format. A start with what an older program
// wrote leaves the format as it is.
func TestANewClusterWritesTheNewestFormatFromItsFirstEntryOn(t *testing.T) {
	t.Parallel()
	disk := replogtest.NewDisk()
	var told []uint16
	o := rigOptions{disk: disk, node: Options{OnFormat: func(format uint16) error {
		told = append(told, format)
		return nil
	}}}
	r := openRig(t, o)
	r.must(&core.TaskCreate{ID: taskID(1), Queue: "q"})
	if got := r.node.Format(); got != core.NewestFormat() {
		t.Errorf("a new server writes format %d, the newest is %d", got, core.NewestFormat())
	}
	if len(told) != 1 || told[0] != core.NewestFormat() {
		t.Errorf("the directory was told of formats %v, expected the newest one once", told)
	}
	r.close()
	r = openRig(t, o)
	defer r.close()
	if got := r.node.Format(); got != core.NewestFormat() {
		t.Errorf("after a restart the server writes format %d, the newest is %d", got, core.NewestFormat())
	}
	if op := r.node.shards[0].firstFormat(1); op != nil {
		t.Errorf("a shard that has applied entries raises the format to %d", op.To)
	}
}

// A node whose replica has applied the empty entry of a term alone has not heard of the cluster's format yet.
func TestANodeKnowsTheFormatFromTheFirstCommitsOn(t *testing.T) {
	t.Parallel()
	disk := replogtest.NewDisk()
	raises, looked := make(chan struct{}), make(chan struct{})
	o := rigOptions{disk: disk, node: Options{OnFormat: func(uint16) error {
		close(raises)
		<-looked
		return nil
	}}}
	r, err := startRig(t, o)
	if err != nil {
		t.Fatal(err)
	}
	<-raises
	if applied := r.node.shards[0].view.applied.Load(); applied == 0 || r.node.KnowsFormat() {
		t.Errorf("after %d entries without commits the node says that it knows the format: %v", applied, r.node.KnowsFormat())
	}
	close(looked)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.node.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	if !r.node.KnowsFormat() {
		t.Error("a node that serves does not know the format")
	}
	r.close()
	r = openRig(t, rigOptions{disk: disk})
	defer r.close()
	if !r.node.KnowsFormat() {
		t.Error("a node that starts with applied commits does not know the format")
	}
}
