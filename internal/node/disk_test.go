package node

import (
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

// hangingFS is a disk whose syncs of data return when it is let go.
type hangingFS struct {
	env.FS
	mu   sync.Mutex
	held chan struct{} // nil: nothing is held
}

func (d *hangingFS) OpenReadWrite(name string) (env.File, error) {
	f, err := d.FS.OpenReadWrite(name)
	return hangingFile{f, d}, err
}

func (d *hangingFS) Create(name string) (env.File, error) {
	f, err := d.FS.Create(name)
	return hangingFile{f, d}, err
}

type hangingFile struct {
	env.File
	disk *hangingFS
}

func (f hangingFile) SyncData() error {
	f.disk.mu.Lock()
	held := f.disk.held
	f.disk.mu.Unlock()
	if held != nil {
		<-held
	}
	return f.File.SyncData()
}

func (d *hangingFS) hold() (letGo func()) {
	held := make(chan struct{})
	d.mu.Lock()
	d.held = held
	d.mu.Unlock()
	return func() {
		d.mu.Lock()
		d.held = nil
		d.mu.Unlock()
		close(held)
	}
}

func TestALeaderWhoseDiskHangsHandsItsShardOverAndComesBack(t *testing.T) {
	disk := &hangingFS{}
	c := openClusterOn(t, 3, Options{}, func(id uint64, fs env.FS) env.FS {
		if id != 1 {
			return fs
		}
		disk.FS = fs
		return disk
	})
	ctx := within(t, time.Minute)
	c.known(ctx)
	if lead := c.leader(ctx, 0, 0); lead.node.o.Replica != 1 {
		if err := lead.node.Transfer(ctx, 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	lead := c.leader(ctx, 0, 0)
	letGo := disk.hold()
	var once sync.Once
	defer once.Do(letGo)
	ends := make(chan core.Proposed, 1)
	lead.node.Propose(c.ns, []core.Commit{{Partition: c.ns, Principal: "p", Ops: []core.Op{&core.TaskCreate{ID: taskID(1), Queue: "q"}}}},
		func(p core.Proposed) { ends <- p })
	next := c.commit(ctx, 1, &core.TaskCreate{ID: taskID(2), Queue: "q"})
	if next.node.o.Replica == 1 {
		t.Fatal("the node whose disk hangs leads")
	}
	if p := <-ends; p.Err == nil {
		t.Errorf("what waits for the disk was acknowledged: %+v", p.Results)
	}
	once.Do(letGo)
	c.settled(0)
	c.commit(ctx, 0, &core.TaskCreate{ID: taskID(3), Queue: "q"})
}
