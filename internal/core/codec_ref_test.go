package core

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func sampleConfig() RepoConfig {
	return RepoConfig{
		Version: 3, State: RepoArchived, Hide: []string{"refs/pull/**"},
		Rules: []RefRule{{
			Refs: "refs/heads/main", Deny: DenyForce | DenyDelete, Except: []string{"root"}, Only: ViaEffects, Queue: "merge",
		}},
		ReflogDays: 30, ReflogMax: 10, MaxBytes: 1 << 20, MaxPush: 1 << 19,
	}
}

func samplePack() Pack {
	return Pack{Digest: Digest{1, 31: 2}, Idx: Digest{3, 31: 4}, Bytes: 5000, IdxBytes: 1100, Objects: 7, Kind: PackPush}
}

// sampleRefOps holds each op of refs once, with every field set.
func sampleRefOps() []Op {
	return []Op{
		&RepoCreate{Name: "app", ID: RepoID{1, 15: 2}, Tag: "shop", Branch: "trunk", Config: sampleConfig()},
		&RepoSet{Name: "app", Branch: "main", IfVersion: 2, Config: sampleConfig()},
		&RefTxn{
			Repo: "app", Tag: "shop", ID: RepoID{1, 15: 2}, Partial: true, Message: "push", Push: RequestID{7, 15: 8},
			Packs: []Pack{samplePack()}, StagedAt: 1_700_000_000_000, Epoch: 2, Options: []string{"ci.skip"}, Via: ViaPush,
			Admin: true, NoForce: true,
			Changes: []RefChange{
				{
					Kind: OpRefUpdate, Name: "refs/heads/main", HasOld: true, Old: ObjectID{1, 19: 1}, New: ObjectID{2, 19: 2},
					NoDeref: true, Message: "m", Type: ObjectCommit, Base: ObjectID{1, 19: 1}, Ancestry: Forced,
				},
				{Kind: OpRefCreate, Name: "refs/tags/v1", New: ObjectID{3}, Type: ObjectTag, Peeled: ObjectID{2, 19: 2}},
				{Kind: OpRefDelete, Name: "refs/heads/old", MissingOK: true},
				{Kind: OpSymrefUpdate, Name: "HEAD", Target: "refs/heads/main", HasOldTarget: true, OldTarget: "refs/heads/x"},
			},
		},
		&RepoDelete{Name: "app", IfVersion: -1},
		&RepoUndelete{Name: "app", ID: RepoID{1, 15: 2}},
		&PackSwap{
			Repo: "app", ID: RepoID{1, 15: 2}, Old: []Digest{{5, 31: 6}, {7, 31: 8}}, New: samplePack(), StagedAt: 1_700_000_000_000, Epoch: 2,
		},
	}
}

func sampleRefRefused() RefRefused {
	return RefRefused{Repo: "app", Failures: []RefFailure{
		{Change: 1, Reason: RefMismatch, Name: "refs/heads/a", Expected: ObjectID{1}, Actual: ObjectID{2}},
		{Change: 2, Reason: RefObjectNotCommit, Name: "refs/heads/b", Expected: ObjectID{3}, Type: ObjectBlob},
		{Change: -1, Reason: RefConflict, Name: "refs/heads/c/d", Other: "refs/heads/c"},
	}}
}

func sampleRefResult() Result {
	return Result{Ops: []OpResult{{Kind: OpRefTxn, Refs: &RefsAnswer{Repo: RepoID{1, 15: 2}, Rev: 9, Changes: []RefResult{
		{Old: ObjectID{1}, New: ObjectID{2}},
		{Failure: &RefFailure{Change: 1, Reason: RefExists, Name: "refs/heads/a"}},
	}}}}}
}

func sampleRepo() Repo {
	return Repo{
		ID: RepoID{1, 15: 2}, Name: "app", Tag: "shop", Config: sampleConfig(), CreatedAt: 1_700_000_000_000,
		CreatedBy: "root", DeletedAt: 1_700_000_000_001,
	}
}

func sampleRefLog() RefLog {
	return RefLog{
		Old: ObjectID{1}, New: ObjectID{2}, OldTarget: "refs/heads/a", NewTarget: "refs/heads/b", Principal: "root",
		Cause: CauseTask, Request: RequestID{5}, Task: TaskID{6}, Token: 7, Message: "m", Stamp: 1_700_000_000_000, Index: 8, Rev: 9,
	}
}

// The records of refs in the store, by name of their codec.
func refRecords() map[string][]byte {
	repo, stats, log := sampleRepo(), RepoStats{Rev: 1, Refs: 2, Packs: 3, Bytes: 4, Manifest: 5, Epoch: 6}, sampleRefLog()
	line := PackLine{Pack: samplePack(), Stamp: 1_700_000_000_000, Index: 8}
	return map[string][]byte{
		"repo": AppendRepo(nil, &repo), "stats": AppendRepoStats(nil, &stats), "log": AppendRefLog(nil, &log),
		"pack": AppendPackLine(nil, &line), "namespace": AppendNamespaceConfig(nil, &NamespaceConfig{Version: 3, RetainBytes: 1 << 30, CreateOnPush: true}),
	}
}

func decodeRefRecord(kind string, b []byte) (any, []byte, error) {
	switch kind {
	case "repo":
		v, err := DecodeRepo(b)
		return v, AppendRepo(nil, &v), err
	case "stats":
		v, err := DecodeRepoStats(b)
		return v, AppendRepoStats(nil, &v), err
	case "log":
		v, err := DecodeRefLog(b)
		return v, AppendRefLog(nil, &v), err
	case "namespace":
		v, err := DecodeNamespaceConfig(b)
		return v, AppendNamespaceConfig(nil, &v), err
	default:
		v, err := DecodePackLine(b)
		return v, AppendPackLine(nil, &v), err
	}
}

func TestGoldenRecordsOfRefs(t *testing.T) {
	path := filepath.Join("testdata", "refs.golden")
	records := refRecords()
	var b strings.Builder
	for _, kind := range []string{"repo", "stats", "log", "pack", "namespace"} {
		b.WriteString(kind + " " + hex.EncodeToString(records[kind]) + "\n")
	}
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the records of refs changed: stores written before cannot be read\ngot  %s\nwant %s", b.String(), want)
	}
	for line := range strings.Lines(string(want)) {
		kind, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		raw, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, again, err := decodeRefRecord(kind, raw); err != nil || !bytes.Equal(again, raw) {
			t.Errorf("%s reads as %x, %v", kind, again, err)
		}
		for n := range raw {
			if _, _, err := decodeRefRecord(kind, raw[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s cut at %d: %v", kind, n, err)
			}
		}
	}
}

func TestRecordsOfRefsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var repo Repo
		fill(t, reflect.ValueOf(&repo).Elem(), "repo")
		if got, err := DecodeRepo(AppendRepo(nil, &repo)); err != nil || !reflect.DeepEqual(got, repo) {
			t.Fatalf("got %+v, %v; want %+v", got, err, repo)
		}
		var log RefLog
		fill(t, reflect.ValueOf(&log).Elem(), "log")
		log.Name, log.Seq = "", 0
		if got, err := DecodeRefLog(AppendRefLog(nil, &log)); err != nil || got != log {
			t.Fatalf("got %+v, %v; want %+v", got, err, log)
		}
	})
}

func TestObjectIDsAreLowerCaseHex(t *testing.T) {
	const text = "0123456789abcdef0123456789abcdef01234567"
	if id, err := ParseObjectID(text); err != nil || id.String() != text {
		t.Errorf("%s reads as %s, %v", text, id, err)
	}
	for _, bad := range []string{"", text[1:], text + "0", strings.ToUpper(text), "g" + text[1:]} {
		if id, err := ParseObjectID(bad); !errors.Is(err, ErrObjectID) || !id.IsZero() {
			t.Errorf("%q reads as %s, %v", bad, id, err)
		}
	}
}
