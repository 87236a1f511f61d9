package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/internal/check"
)

// Evidence is what the servers acknowledged in one run, as far as an audit holds them against it. It is kept where the
// servers' data is kept, so that the audit can be repeated: on the data, or on a server that still runs. What a driver
// checks by itself, such as another system that it also drove, is not repeated.
type Evidence struct {
	Schema string `json:"schema"`
	Suite  string `json:"suite"`
	Row    string `json:"row"`
	// Run, Namespace, Durability and Group are those of the run; Shape is what the servers were started with.
	Run        int        `json:"run"`
	Namespace  string     `json:"namespace"`
	Durability Durability `json:"durability"`
	Group      bool       `json:"group_commit"`
	Shape      Shape      `json:"shape"`
	// Cluster names the files of a cluster of several nodes. It is absent for one node, and for
	// servers that the bench did not start.
	Cluster *initialized `json:"cluster,omitempty"`
	// Audited says that the run came to its audit. The sums of a run that did not are those up to its failure.
	Audited bool `json:"audited"`
	// Exactly one of the three ledgers is there.
	Tasks *TaskLedger  `json:"tasks,omitempty"`
	Keys  *KeyEvidence `json:"keys,omitempty"`
	Refs  *RefEvidence `json:"refs,omitempty"`
}

// evidenceSchema names the form of the file, and evidenceFile is its name in the directory of the
// kept data. A file of another schema is refused.
const (
	evidenceSchema = "millrace.bench.evidence/1"
	evidenceFile   = "evidence.json"
	// evidenceDir holds the evidence of targets, below the output directory: their data is elsewhere.
	evidenceDir = "evidence"
	// maxEvidenceBytes is what 50 million tasks take that are all read back. The bench writes no larger file.
	maxEvidenceBytes = 4 << 30
)

// TaskLedger is what is kept of a ledger of tasks: its sums (see ledgerSums), what every task
// carries, and the sample that is read back.
type TaskLedger struct {
	Queue   string `json:"queue"`
	Payload []byte `json:"payload"`
	Result  []byte `json:"result"`
	// Works says that what was created was completed by workers; Drained and Purges are those of the audit.
	Works        bool   `json:"works"`
	Drained      bool   `json:"drained"`
	Purges       bool   `json:"purges"`
	Created      uint64 `json:"created"`
	Completed    uint64 `json:"completed"`
	Unknown      uint64 `json:"unknown"`
	Replayed     uint64 `json:"replayed"`
	Twice        int    `json:"twice"`
	CreatedTwice int    `json:"created_twice"`
	Missing      int    `json:"missing"`
	Strangers    int    `json:"strangers"`
	// Every says that one in this many ids was compared.
	Every  int          `json:"every"`
	Sample []TaskSample `json:"sample"`
}

// TaskSample is one task that is read back. Followed says that Completions holds all that there were.
type TaskSample struct {
	ID          string           `json:"id"`
	Followed    bool             `json:"followed,omitempty"`
	Completions []TaskCompletion `json:"completions,omitempty"`
}

// TaskCompletion is the end of one completion. Token is the lease token that it was made with.
type TaskCompletion struct {
	Token uint64 `json:"token"`
	// Unknown says that its outcome is not known; otherwise it was acknowledged.
	Unknown  bool `json:"unknown,omitempty"`
	Replayed bool `json:"replayed,omitempty"`
}

// KeyEvidence is what is kept of a ledger of keys: its options, which make the expected values
// again, its counts, and the keys that are read back.
type KeyEvidence struct {
	Options  KeyOptions  `json:"options"`
	Acked    uint64      `json:"acked"`
	Unsure   uint64      `json:"unsure"`
	Repeated uint64      `json:"repeated"`
	Sample   []KeySample `json:"sample"`
}

// KeySample is one key that is read back: the number of its newest acknowledged put and one, that put's revision, and puts
// that may have come after it.
type KeySample struct {
	Key string   `json:"key"`
	Seq uint64   `json:"seq"`
	Rev uint64   `json:"rev"`
	May []uint64 `json:"may,omitempty"`
}

// RefEvidence is what is kept of a ledger of refs. Objects holds ids of objects; At and Unsure name
// an object by its place there, from 1, and 0 means that a ref is not there. At, Unsure and Other
// are those of RefLedger.
type RefEvidence struct {
	Repo    string            `json:"repo"`
	Prefix  string            `json:"prefix"`
	Objects []string          `json:"objects"`
	At      []uint32          `json:"at"`
	Unsure  map[int][]uint32  `json:"unsure,omitempty"`
	Other   map[string]string `json:"other,omitempty"`
	Acked   uint64            `json:"acked"`
	Lost    uint64            `json:"lost"`
}

// evidence makes what is kept of a run, by the ledger that the driver used. drained says that the
// driver came to its end.
func (o *oneRun) evidence(drained bool) *Evidence {
	e := &Evidence{
		Schema: evidenceSchema, Suite: o.spec.suite.Name, Row: o.spec.row.Name, Run: o.run.Number, Namespace: o.c.namespace,
		Durability: o.spec.durability, Group: o.spec.group, Shape: o.spec.shape, Cluster: o.c.files, Audited: o.run.Audit != nil,
	}
	switch {
	case o.rig.Keys != nil:
		e.Keys = o.rig.Keys.evidence()
	case o.rig.Refs != nil && o.spec.shape.Workers == 0:
		e.Refs = o.rig.Refs.evidence()
	default:
		e.Tasks = o.auditor(drained).evidence()
	}
	return e
}

// evidence is the inverse of TaskLedger.auditor.
func (a *auditor) evidence() *TaskLedger {
	s := a.sums
	t := &TaskLedger{
		Queue: a.queue, Payload: a.payload, Result: a.result, Works: a.works, Drained: a.drained, Purges: a.purges, Created: s.created,
		Completed: s.completed, Unknown: s.unknown, Replayed: s.replayed, Twice: s.twice, CreatedTwice: s.createdTwice, Missing: s.missing,
		Strangers: s.strangers, Every: s.every, Sample: make([]TaskSample, len(a.sample)),
	}
	for i, one := range a.sample {
		t.Sample[i] = TaskSample{ID: one.id, Followed: one.followed}
		for _, c := range one.completions {
			t.Sample[i].Completions = append(t.Sample[i].Completions, TaskCompletion{c.token, c.outcome == check.Unknown, c.replayed})
		}
	}
	return t
}

// auditor makes the audit of kept tasks. It lacks servers to read, which the caller sets.
func (t *TaskLedger) auditor() *auditor {
	a := &auditor{
		sums:  ledgerSums{t.Created, t.Completed, t.Unknown, t.Replayed, t.Twice, t.CreatedTwice, t.Missing, t.Strangers, max(t.Every, 1)},
		queue: t.Queue, payload: t.Payload, result: t.Result, works: t.Works, drained: t.Drained, purges: t.Purges,
		sample: make([]sampled, len(t.Sample)),
	}
	for i, one := range t.Sample {
		a.sample[i] = sampled{id: one.ID, followed: one.Followed}
		for _, c := range one.Completions {
			outcome := check.OK
			if c.Unknown {
				outcome = check.Unknown
			}
			a.sample[i].completions = append(a.sample[i].completions, completion{one.ID, c.Token, outcome, c.Replayed})
		}
	}
	return a
}

// evidence copies the ledger's sums and draws its sample. The two locks are taken one after the
// other: samples takes the lock itself.
func (l *KeyLedger) evidence() *KeyEvidence {
	e := &KeyEvidence{Options: l.o}
	for _, s := range l.samples() {
		e.Sample = append(e.Sample, KeySample{s.key, s.last.seq, s.last.rev, s.may})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.Acked, e.Unsure, e.Repeated = l.acked, l.unsure, l.repeated
	return e
}

// ledger makes a ledger of kept keys. It is only read: kept replaces the sample that a live ledger draws.
func (e *KeyEvidence) ledger() *KeyLedger {
	l := NewKeyLedger(e.Options)
	l.acked, l.unsure, l.repeated, l.kept = e.Acked, e.Unsure, e.Repeated, []keySample{}
	for _, s := range e.Sample {
		l.kept = append(l.kept, keySample{s.Key, keyPut{s.Seq, s.Rev}, s.May})
	}
	return l
}

// evidence copies a ledger of refs. Its maps are shared: the run has ended, and nothing changes them.
func (l *RefLedger) evidence() *RefEvidence {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &RefEvidence{
		Repo: l.Repo, Prefix: l.Prefix, Objects: make([]string, len(l.ids)), At: slices.Clone(l.at), Unsure: l.unsure, Other: l.other,
		Acked: l.acked, Lost: l.lost,
	}
	for object, n := range l.ids {
		e.Objects[n-1] = object
	}
	return e
}

// ledger makes a ledger of kept refs. Objects are numbered in the order of the file, which gives
// each the number it had.
func (e *RefEvidence) ledger() *RefLedger {
	l := NewRefLedger(e.Repo, e.Prefix)
	for _, object := range e.Objects {
		l.id(object)
	}
	l.at, l.acked, l.lost = e.At, e.Acked, e.Lost
	if e.Unsure != nil {
		l.unsure = e.Unsure
	}
	if e.Other != nil {
		l.other = e.Other
	}
	return l
}

// keepEvidence writes the evidence into dir, and returns the file's name; empty: nothing was
// acknowledged that is kept. It writes a new file and renames it, so that no half of one is read.
func (o *oneRun) keepEvidence(dir, name string) (string, error) {
	if o.rig == nil || o.spec.row.Servers != "" {
		return "", nil // nothing was acknowledged that is kept
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("keep evidence: %w", err)
	}
	file := filepath.Join(dir, name)
	if err := writeJSON(file, o.evidence(o.drained)); err != nil {
		return "", fmt.Errorf("keep evidence: %w", err)
	}
	return file, nil
}

// readEvidence reads a file of evidence, and refuses a file of another schema, with unknown fields,
// or with values that cannot be.
func readEvidence(file string) (*Evidence, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, usage("evidence", "%v", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	in := json.NewDecoder(io.LimitReader(f, maxEvidenceBytes))
	in.DisallowUnknownFields()
	var e Evidence
	if err := in.Decode(&e); err != nil {
		return nil, usage("evidence", "%s: %v", file, err)
	}
	if e.Schema != evidenceSchema {
		return nil, usage("evidence", "%s has schema %q, not %q", file, e.Schema, evidenceSchema)
	}
	return &e, e.check(file)
}

// check refuses evidence without exactly one ledger, and values that would make the audit index or
// allocate out of range.
func (e *Evidence) check(file string) error {
	n := 0
	for _, there := range []bool{e.Tasks != nil, e.Keys != nil, e.Refs != nil} {
		if there {
			n++
		}
	}
	if n != 1 {
		return usage("evidence", "%s is of %d ledgers, not of one", file, n)
	}
	if k := e.Keys; k != nil && (k.Options.Keys < 1 || k.Options.ValueBytes < 0 || k.Options.ValueBytes > maxPayload || k.Options.Partitions > maxShards) {
		return usage("evidence", "%s: the options of its keys are out of range", file)
	}
	if k := e.Keys; k != nil && slices.ContainsFunc(k.Sample, func(s KeySample) bool { return s.Seq == 0 }) {
		return usage("evidence", "%s has a key that nothing was put at", file)
	}
	if r := e.Refs; r != nil {
		for _, at := range append(slices.Concat(r.At), slices.Concat(mapValues(r.Unsure)...)...) {
			if int(at) > len(r.Objects) {
				return usage("evidence", "%s has a ref at object %d of %d", file, at, len(r.Objects))
			}
		}
	}
	if e.Shape.Nodes > 1 && e.Cluster != nil && len(e.Cluster.Nodes) != e.Shape.Nodes {
		return usage("evidence", "%s is of %d nodes and has files of %d", file, e.Shape.Nodes, len(e.Cluster.Nodes))
	}
	return nil
}

// mapValues lists the values of a map, in any order.
func mapValues(m map[int][]uint32) [][]uint32 {
	var out [][]uint32
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// evidenceAt lists the files of evidence that a path names: a file, a directory of kept data, or an output directory.
func evidenceAt(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, usage("evidence", "%v", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	if file := filepath.Join(path, evidenceFile); exists(file) {
		return []string{file}, nil
	}
	files, err := filepath.Glob(filepath.Join(path, evidenceDir, "*.json"))
	if err == nil && len(files) == 0 {
		err = errors.New("it has no evidence: that is kept of data that is kept, and of runs against a --target")
	}
	if err != nil {
		return nil, usage("evidence", "%s: %v", path, err)
	}
	return files, nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// HoldsEvidence reports whether a directory is one of kept data.
func HoldsEvidence(dir string) bool { return exists(filepath.Join(dir, evidenceFile)) }
