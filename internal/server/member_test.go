package server

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/config"
	"github.com/millrace/millrace/internal/env/envtest"
	"github.com/millrace/millrace/internal/errs"
)

// aloneIn are the options of the only node of a cluster.
func aloneIn(t *testing.T, dir string) Options {
	t.Helper()
	o, err := Dev(Options{
		Dir: dir, Listen: "127.0.0.1:0", HTTP: off, Admin: off, Memory: minMemory, Shards: 2,
	}, NewToken())
	if err != nil {
		t.Fatal(err)
	}
	address := envtest.Ports(t, 1)[0]
	o.Cluster = config.Cluster{
		ID: strings.Repeat("0a", 16), Node: 1, Listen: address, Plain: true,
		Peers: []config.Peer{{ID: 1, Address: address, API: "n1.example:7081"}},
	}
	return o
}

// startAndStop runs a server for a moment.
func startAndStop(t *testing.T, o Options) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := Start(ctx, o)
	if err != nil {
		return err
	}
	return r.Close(0)
}

// filesOf reads every file below a directory.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		out[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestADirectoryIsRefusedUnderOtherSettingsAndNothingInItChanges(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	o := aloneIn(t, dir)
	if err := startAndStop(t, o); err != nil {
		t.Fatal(err)
	}
	before := filesOf(t, dir)
	second := config.Peer{ID: 2, Address: envtest.Ports(t, 1)[0], API: "n2.example:7081"}
	for _, c := range []struct {
		setting, made, given string
		change               func(o *Options)
	}{
		{"cluster-id", o.Cluster.ID, "by itself", func(o *Options) { o.Cluster = config.Cluster{} }},
		{"cluster-id", o.Cluster.ID, strings.Repeat("0b", 16), func(o *Options) { o.Cluster.ID = strings.Repeat("0b", 16) }},
		{"node-id", "node-id 1", "say 2", func(o *Options) {
			o.Cluster.Node = 2
			o.Cluster.Peers = append(o.Cluster.Peers, second)
		}},
		{"peers", "nodes 1,", "nodes 1, 2", func(o *Options) { o.Cluster.Peers = append(o.Cluster.Peers, second) }},
		{"shards", "shards 2", "say 3", func(o *Options) { o.Shards = 3 }},
	} {
		other := aloneIn(t, dir)
		c.change(&other)
		err := startAndStop(t, other)
		refused, ok := errors.AsType[*OtherMemberError](err)
		if !ok || refused.Setting != c.setting || ExitCode(err) != exitIdentity {
			t.Errorf("%s: %v, exit code %d", c.setting, err, ExitCode(err))
			continue
		}
		for _, word := range []string{dir, c.setting, c.made, c.given} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not say %q", c.setting, err, word)
			}
		}
		if !maps.Equal(before, filesOf(t, dir)) {
			t.Fatalf("%s: the directory was changed", c.setting)
		}
	}
	same := aloneIn(t, dir)
	same.Cluster.ID = strings.ToUpper(same.Cluster.ID)
	if err := startAndStop(t, same); err != nil {
		t.Errorf("under the same settings: %v", err)
	}
}

// Two servers that each served by themselves have histories that nothing can join.
func TestADirectoryThatServedByItselfJoinsNoCluster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	o := aloneIn(t, dir)
	alone := o
	alone.Cluster = config.Cluster{}
	if err := startAndStop(t, alone); err != nil {
		t.Fatal(err)
	}
	err := startAndStop(t, o)
	if refused, ok := errors.AsType[*OtherMemberError](err); !ok || refused.Setting != "cluster-id" || !strings.Contains(err.Error(), "a server by itself") {
		t.Errorf("it was started as a node: %v", err)
	}
}

func TestADamagedMemberIsNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	o := aloneIn(t, dir)
	if err := startAndStop(t, o); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, memberName)
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "{}", strings.Replace(string(whole), `"node_id":1`, `"node_id":2`, 1)} {
		if err := os.WriteFile(name, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		err := startAndStop(t, o)
		if _, ok := errors.AsType[*errs.Corruption](err); !ok || !strings.Contains(err.Error(), name) || ExitCode(err) != exitCorruption {
			t.Errorf("%q: %v, exit code %d", bad, err, ExitCode(err))
		}
	}
}

func TestTheStatusOfAClusterIsTheSumOfWhatItsNodesSay(t *testing.T) {
	s := ClusterStatus{Nodes: []NodeStatus{
		{ID: 1, Replicas: []ReplicaRow{{Shard: 0, Leads: true, Term: 3, Commit: 10, Applied: 10}, {Shard: 1, Term: 5, Commit: 4, Applied: 1}}},
		{ID: 2, Replicas: []ReplicaRow{{Shard: 0, Leads: true, Term: 4, Commit: 12, Applied: 11}, {Shard: 1, Term: 5, Commit: 7, Applied: 7, Leads: true}}},
		{ID: 3, Error: "gone"},
	}}
	s.sum()
	if len(s.Shards) != 2 || !reflect.DeepEqual(s.Shards[0], ShardStatus{Shard: 0, Leader: 2, Term: 4, Commit: 12}) || !reflect.DeepEqual(s.Shards[1], ShardStatus{Shard: 1, Leader: 2, Term: 5, Commit: 7}) {
		t.Errorf("shards %+v", s.Shards)
	}
	if s.Nodes[0].Lag != 6 || s.Nodes[0].Replicas[0].Lag != 2 || s.Nodes[1].Lag != 1 || s.Nodes[2].Lag != 0 {
		t.Errorf("nodes %+v", s.Nodes)
	}
}

func TestALogThatDoesNotSayWhoseItIsJoinsNoCluster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	o := aloneIn(t, dir)
	if err := startAndStop(t, o); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, memberName)); err != nil {
		t.Fatal(err)
	}
	err := startAndStop(t, o)
	if _, ok := errors.AsType[*OtherMemberError](err); !ok {
		t.Errorf("started with %v, want a refusal", err)
	}
	if _, err := os.Stat(filepath.Join(dir, memberName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory remembers settings that were refused: %v", err)
	}
}
