package bench

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestAServerBesideTheRowsOwnIsWatchedApartAndItsEndIsSeen(t *testing.T) {
	dir := t.TempDir()
	start := func(name, script string) *process {
		p, _, err := startProcess(t.Context(), name, filepath.Join(dir, name+".log"), exec.Command("sh", "-c", script), nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	own := start("server-1", "echo {}; exec sleep 60")
	gone := start(besideName, "echo {}; exec sleep 60")
	c := &cluster{procs: []*process{own}, nextTo: &cluster{procs: []*process{gone}}}
	if err := gone.crash(); err != nil {
		t.Fatal(err)
	}
	if err := (&oneRun{c: c}).gone(); err == nil || !strings.Contains(err.Error(), besideName+" ended by itself") {
		t.Errorf("error %v, want a word on the server that ended", err)
	}
	all := c.watched()
	if len(all) != 2 || all[0].apart || all[0].pid != own.pid || !all[1].apart || all[1].name != besideName {
		t.Errorf("watched %+v, want the single-node server marked apart", all)
	}
	if err := c.stop(); err != nil && !strings.Contains(err.Error(), "done") {
		t.Error(err)
	}
	if !own.done() {
		t.Error("the row's server still runs")
	}
}

func TestARowWithAServerBesideSaysSoAndDoesNotRunInOneProcess(t *testing.T) {
	s := Suite{Name: "a", Drive: func(context.Context, *Rig) error { return nil }, Rows: []RowSpec{{Name: "b", Shape: Shape{Nodes: 1, Beside: true}}}}
	if got := s.Rows[0].Shape.Params(); len(got) != 2 || got[1] != (Param{"beside", besideName}) {
		t.Errorf("parameters %v, want one for the single-node server", got)
	}
	c := Defaults()
	c.Select, c.Topology = []string{"a"}, InProc
	_, err := choose(&c, &Harness{Suites: []Suite{s}})
	if refused, ok := errors.AsType[*UsageError](err); !ok || refused.Field != "topology" {
		t.Errorf("error %v, want a refusal of the topology", err)
	}
}
