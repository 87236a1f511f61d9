package e2e

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	millrace "github.com/millrace/millrace/sdk/go"
)

// treatment says what becomes of a kind of stored state in backup, verify and restore.
type treatment struct{ backup, verify, restore string }

// How most kinds are treated.
var (
	inTables = treatment{
		"in the tables of its shard, as of one entry", "tables hold the form and order of keys, and add up to the content hash that the node computed", "installed with its shard",
	}
	brokenOff = treatment{
		"in the tables of its shard", "as all keys", "installed, and then set by the entry that breaks the history off",
	}
	namesFiles = treatment{
		"in the tables of its shard; the files that it names are in objects", "each file that it names is listed, and has the SHA-256 of its name",
		"installed; each file is put in place, and compared with its digest",
	}
)

// keyKinds has a row for each kind of key: the constants of package keys that are plain numbers.
var keyKinds = map[string]treatment{
	"ServiceMeta": inTables, "ServiceQueue": inTables, "ServiceKV": inTables, "ServiceRefs": inTables, "ServiceSearch": inTables,
	"ServiceSystem": inTables, "ServiceShard": inTables,

	"metaState": inTables, "metaConfig": inTables, "metaRequest": inTables, "metaRequestDue": inTables, "metaSession": inTables,
	"metaSessionAnswer": inTables, "metaSessionDue": inTables,

	"systemCounter": inTables, "systemTenant": inTables, "systemNamespace": inTables, "systemFormat": inTables, "systemBounds": inTables,
	"systemRemoval": inTables, "systemRemovals": inTables, "systemSessions": inTables, "shardGone": inTables,
	"systemMembers": brokenOff, "shardTime": inTables, "shardFloor": brokenOff, "shardConf": brokenOff,

	"RecordQueueMeta": inTables, "RecordQueueConfig": inTables, "RecordQueueCounters": inTables, "RecordTaskPayload": inTables,
	"RecordTaskState": inTables, "RecordTaskResult": inTables, "RecordTaskAttempt": inTables, "RecordTaskHolder": inTables,
	"RecordReady": inTables, "RecordTimer": inTables, "RecordRunning": inTables, "RecordTerminal": inTables, "RecordUnique": inTables,
	"RecordWindow": inTables, "RecordRemoved": inTables, "RecordWallTimer": inTables,
	"RecordTaskCancel": inTables, "RecordExpiry": inTables, "RecordLabel": inTables, "RecordBulk": inTables,
	"RecordTaskEffects": inTables, "RecordTaskReport": inTables, "RecordTaskLog": inTables, "RecordCheckpoint": inTables,
	"RecordCron": inTables, "RecordCronTemplate": inTables, "RecordCronRun": inTables,
	"RecordBatch": inTables, "RecordBatchCounts": inTables, "RecordBatchTask": inTables, "RecordBatchEnd": inTables,
	"RecordBatches": inTables, "TimerBatch": inTables,
	"RecordShare": inTables, "RecordLane": inTables, "RecordLimiter": inTables, "RecordAfter": inTables, "RecordBlocked": inTables, "TimerAfter": inTables,
	"RecordTenantQuota": inTables, "RecordErrorGroup": inTables, "RecordErrors": inTables, "TimerErrors": inTables,
	"TimerScheduled": inTables, "TimerUnique": inTables, "TimerTombstone": inTables, "TimerWindow": inTables,
	"SpaceUnique": inTables, "SpaceRequest": inTables,

	"spaceRepoName": inTables, "spaceRepo": inTables, "spaceRefDue": inTables, "spaceRepoDeleted": inTables,
	"partRepo": inTables, "partStats": inTables, "partRef": inTables, "partDir": inTables, "partLog": inTables, "partPack": namesFiles,

	"searchCounts": inTables, "searchPoints": inTables, "searchVectors": inTables, "searchRecordings": inTables, "searchOrder": inTables,
	"searchDefinitions": inTables, "searchRulesets": inTables,
}

// keyLengths are the plain numbers of package keys that are not kinds.
var keyLengths = map[string]bool{"incarnationLen": true, "idLen": true, "lanePlaces": true}

// A kind of key that is added has to say how backups treat it: one that names files, or anything else outside of the tables,
// is not kept by keeping the tables.
func TestEachKindOfKeySaysHowBackupsTreatIt(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	files, err := filepath.Glob("../../internal/keys/*.go")
	noErr(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		noErr(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				if i < len(spec.Values) {
					if value, ok := spec.Values[i].(*ast.BasicLit); ok && value.Kind == token.INT && !keyLengths[name.Name] {
						found[name.Name] = true
					}
				}
			}
			return true
		})
	}
	for name := range found {
		if row, ok := keyKinds[name]; !ok || row.backup == "" || row.verify == "" || row.restore == "" {
			t.Errorf("%s of package keys has no row here: how do backup, verify and restore treat it?", name)
		}
	}
	for name := range keyKinds {
		if !found[name] {
			t.Errorf("%s has a row, and is not a kind of key", name)
		}
	}
	if len(found) < 40 {
		t.Errorf("only %d kinds of keys were found", len(found))
	}
}

// How files are treated that are not copied as they are.
var (
	madeAgain = treatment{"not in it", "nothing to verify", "made by the restore"}
	ofItsOwn  = treatment{"not in it: it is this node's own", "nothing to verify", "made by the restore, for another server"}
	passing   = treatment{"not in it: it is of something under way, and not read back", "nothing to verify", "not made"}
	convenes  = treatment{"not in it: it makes a start faster", "nothing to verify", "not made; the server makes it"}
	setAside  = treatment{"not in it: it is kept for people", "nothing to verify", "not made"}
)

// fileKinds has a row for each kind of file below a data directory.
var fileKinds = []struct {
	name string // the whole path, as an expression
	treatment
}{
	{`LOCK`, passing},
	{`operator\.sock`, passing},
	{`IDENTITY|IDENTITY\.tmp`, ofItsOwn},
	{`MEMBER|MEMBER\.tmp`, ofItsOwn},
	{`UNFINISHED`, treatment{"refused by the server's start", "nothing to verify", "there until the restore is whole"}},
	{`BALLAST`, convenes},
	{`SEARCHED|SEARCHED\.tmp`, convenes},
	{`wal/(LOG|LOG\.tmp|\d+\.(wal|spare|tmp))`, treatment{"not in it: what it holds is in the state", "nothing to verify", "begun behind the state"}},
	{`wal\.before-recover-\d+/(LOG|\d+\.(wal|spare))`, setAside},
	{`store/(\d+\.(sst|log|blob|dbtmp)|(MANIFEST|OPTIONS)-\d+|marker\..*|LOCK)`, treatment{"its keys, as tables", "as tables", "made of the tables"}},
	{`snapshots/((backup|out|in)-\d+-\d+/\d+\.sst|packs-\d+-\d+|install-\d+(\.tmp)?)`, passing},
	{`git/none\.git/(HEAD|config)`, convenes},
	{`git/held/[0-9a-f]+/(new|whole)/[0-9a-f]{2}/[0-9a-f]{64}\.(pack|idx)`, passing},
	{`git/\d+/[0-9a-f]{32}/OWNER`, madeAgain},
	{`git/\d+/[0-9a-f]{32}/objects/pack/pack-[0-9a-f]{64}\.(pack|idx)`, namesFiles},
	{`git/\d+/[0-9a-f]{32}/staged/[0-9a-f]{64}-[0-9a-f]{16}-[0-9a-f]+\.(pack|idx)`, treatment{
		"in objects, when a manifest names it; else its push was not acknowledged", "as a pack", "put where published packs are",
	}},
	{`git/\d+/[0-9a-f]{32}/(incoming|gitdirs|views)/.*`, passing},
}

// walked notes the files below a data directory, and wants each to have a row.
func walked(t *testing.T, dir string, seen map[string]bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			if os.IsNotExist(err) { // it went meanwhile
				return nil
			}
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		rows := 0
		for _, kind := range fileKinds {
			if regexp.MustCompile("^(" + kind.name + ")$").MatchString(name) {
				seen[kind.name] = true
				rows++
			}
		}
		if rows != 1 {
			t.Errorf("file %s of a data directory has %d rows here: how do backup, verify and restore treat it?", name, rows)
		}
		return nil
	})
	noErr(t, err)
}

// A kind of file that a server begins to write has to say how backups treat it.
func TestEachKindOfFileSaysHowBackupsTreatIt(t *testing.T) {
	t.Parallel()
	needGit(t)
	seen := map[string]bool{}
	c := startCluster(t, 1, 2)
	ctx := bounded(t, 2*time.Minute)
	k := c.client(0)
	addMany(t, ctx, k, "q", 50)
	_, err := k.KV("ks").Put(ctx, "a", "b")
	noErr(t, err)
	notes := k.Collection("notes")
	_, err = notes.Create(ctx, millrace.CollectionConfig{})
	noErr(t, err)
	_, err = notes.Upsert(ctx, millrace.Point{ID: "n", Payload: map[string]string{"text": "some words"}})
	noErr(t, err)
	_, err = notes.Search(ctx, millrace.Search{Text: "words", K: 1})
	noErr(t, err)
	c.makeRepo("app")
	w := newWork(t, "2")
	for i := range 4 {
		w.commit("f", fmt.Sprint(i))
		w.git("push", "-q", c.git(0).url("app"), "main")
	}
	w.git("clone", "-q", c.git(0).url("app"), "clone")
	data, dir := c.options(0).Dir, t.TempDir()
	to := filepath.Join(dir, "b")
	slow := exec.CommandContext(ctx, program, "backup", "--to", filepath.Join(dir, "slow"), "--rate", "512", "--server", c.peers[0].API, "--token", c.token)
	noErr(t, slow.Start())
	eventually(t, "a backup is under way", func() bool {
		names, _ := filepath.Glob(filepath.Join(data, "git", "held", "*", "*", "*", "*"))
		return len(names) > 0
	})
	walked(t, data, seen)
	noErr(t, slow.Process.Kill())
	_ = slow.Wait() // it was killed
	eventually(t, "the node has noticed, and gives another backup", func() bool {
		e := millraceAs(t, c.peers[0].API, c.token, "backup", "--to", to)
		if e.code != 0 && !strings.Contains(e.out, "limit backups of 1 reached") {
			t.Errorf("backup ended with %d\n%s", e.code, e.out)
		}
		return e.code == 0
	})
	c.stop(0)
	walked(t, data, seen)
	restored := filepath.Join(dir, "data")
	if e := run(t, "restore", "--from", to, "--data", restored); e.code != 0 {
		t.Fatalf("restore ended with %d\n%s", e.code, e.out)
	}
	walked(t, restored, seen)
	noErr(t, os.Rename(filepath.Join(restored, "MEMBER"), filepath.Join(dir, "MEMBER")))
	if e := run(t, "cluster", "recover", "--data", data, "--force-new-cluster"); e.code != 0 {
		t.Fatalf("recover ended with %d\n%s", e.code, e.out)
	}
	walked(t, data, seen)
	for _, kind := range fileKinds {
		if kind.backup == "" || kind.verify == "" || kind.restore == "" {
			t.Errorf("%s: how do backup, verify and restore treat it?", kind.name)
		}
		switch kind.name {
		case `UNFINISHED`, `BALLAST`: // of commands that did not end, and of disks that can tell what is free
		case `git/\d+/[0-9a-f]{32}/staged/[0-9a-f]{64}-[0-9a-f]{16}-[0-9a-f]+\.(pack|idx)`: // for an instant
		default:
			if !seen[kind.name] {
				t.Errorf("no file was a %s", kind.name)
			}
		}
	}
}
