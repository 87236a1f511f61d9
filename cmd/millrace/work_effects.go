package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	millrace "github.com/millrace/millrace/sdk/go"
)

// effect is one line of an effects file, without its op: an op has no fields but its own.
type effect interface{ add(tx *millrace.Tx) error }

// effectOf returns an empty effect of an op.
func effectOf(op string) (effect, error) {
	switch op {
	case "kv_put":
		return new(putEffect), nil
	case "kv_delete":
		return new(deleteEffect), nil
	case "kv_add":
		return new(addEffect), nil
	case "kv_delete_range":
		return new(deleteRangeEffect), nil
	case "ref_update":
		return new(refEffect), nil
	case "vector_upsert":
		return new(upsertEffect), nil
	case "vector_delete":
		return new(removeEffect), nil
	case "task_create":
		return new(taskEffect), nil
	}
	return nil, fmt.Errorf("unknown op %q", op)
}

// readEffects adds the lines of an effects file to tx. A line that makes no sense is an error that names it.
func readEffects(name string, tx *millrace.Tx) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for i, line := range bytes.Split(b, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := readEffect(line, tx); err != nil {
			return fmt.Errorf("effects line %d: %w", i+1, err)
		}
	}
	return nil
}

func readEffect(line []byte, tx *millrace.Tx) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return err
	}
	var op string
	if err := json.Unmarshal(fields["op"], &op); err != nil {
		return errors.New("no op is named")
	}
	e, err := effectOf(op)
	if err != nil {
		return err
	}
	delete(fields, "op")
	rest, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(rest))
	d.DisallowUnknownFields()
	if err := d.Decode(e); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if err := e.add(tx); err != nil {
		return fmt.Errorf("%s %w", op, err)
	}
	return nil
}

type putEffect struct {
	Keyspace string  `json:"keyspace"`
	Key      string  `json:"key"`
	Value    *string `json:"value"`
	IfRev    *uint64 `json:"if_rev"`
	IfAbsent bool    `json:"if_absent"`
}

func (e *putEffect) add(tx *millrace.Tx) error {
	if e.Value == nil {
		return errors.New("needs a value")
	}
	var opts []millrace.PutOption
	if e.IfRev != nil {
		opts = append(opts, millrace.IfRev(*e.IfRev))
	}
	if e.IfAbsent {
		opts = append(opts, millrace.IfAbsent())
	}
	tx.KV(e.Keyspace).Put(e.Key, *e.Value, opts...)
	return nil
}

type deleteEffect struct {
	Keyspace string  `json:"keyspace"`
	Key      string  `json:"key"`
	IfRev    *uint64 `json:"if_rev"`
}

func (e *deleteEffect) add(tx *millrace.Tx) error {
	var opts []millrace.DeleteOption
	if e.IfRev != nil {
		opts = append(opts, millrace.IfRev(*e.IfRev))
	}
	tx.KV(e.Keyspace).Delete(e.Key, opts...)
	return nil
}

type addEffect struct {
	Keyspace string  `json:"keyspace"`
	Key      string  `json:"key"`
	Delta    *int64  `json:"delta"`
	Floor    *int64  `json:"floor"`
	Ceiling  *int64  `json:"ceiling"`
	IfRev    *uint64 `json:"if_rev"`
}

func (e *addEffect) add(tx *millrace.Tx) error {
	if e.Delta == nil {
		return errors.New("needs a delta")
	}
	var opts []millrace.AddNumberOption
	if e.Floor != nil {
		opts = append(opts, millrace.Floor(*e.Floor))
	}
	if e.Ceiling != nil {
		opts = append(opts, millrace.Ceiling(*e.Ceiling))
	}
	if e.IfRev != nil {
		opts = append(opts, millrace.IfRev(*e.IfRev))
	}
	tx.KV(e.Keyspace).Add(e.Key, *e.Delta, opts...)
	return nil
}

type deleteRangeEffect struct {
	Keyspace string  `json:"keyspace"`
	Prefix   *string `json:"prefix"`
	From     string  `json:"from"`
	To       string  `json:"to"`
}

func (e *deleteRangeEffect) add(tx *millrace.Tx) error {
	switch {
	case e.Prefix != nil && (e.From != "" || e.To != ""):
		return errors.New("takes a prefix, or from and to")
	case e.Prefix != nil:
		tx.KV(e.Keyspace).DeleteRange(millrace.Prefix(*e.Prefix))
	case e.From == "" && e.To == "":
		return errors.New("needs a prefix, or from and to")
	default:
		tx.KV(e.Keyspace).DeleteRange(millrace.Between(e.From, e.To))
	}
	return nil
}

type refEffect struct {
	Repo string  `json:"repo"`
	Tag  string  `json:"tag"`
	Ref  string  `json:"ref"`
	Old  *string `json:"old"` // absent: whatever the ref is at
	New  *string `json:"new"`
}

func (e *refEffect) add(tx *millrace.Tx) error {
	if e.New == nil {
		return errors.New("needs new")
	}
	change := millrace.SetRef(e.Ref, *e.New)
	if e.Old != nil {
		change = millrace.MoveRef(e.Ref, *e.Old, *e.New)
	}
	tx.Repo(e.Repo).Tagged(e.Tag).Apply(change)
	return nil
}

type upsertEffect struct {
	Collection string          `json:"collection"`
	ID         string          `json:"id"`
	Payload    json.RawMessage `json:"payload"`
	Vector     []float32       `json:"vector"`
	Model      string          `json:"model"`
	IfVersion  string          `json:"if_version"`
	IfAbsent   bool            `json:"if_absent"`
}

func (e *upsertEffect) add(tx *millrace.Tx) error {
	p := millrace.Point{ID: e.ID, Vector: e.Vector, Model: e.Model, IfVersion: e.IfVersion, IfAbsent: e.IfAbsent}
	if e.Payload != nil {
		p.Payload = e.Payload
	}
	tx.Collection(e.Collection).Upsert(p)
	return nil
}

type removeEffect struct {
	Collection string `json:"collection"`
	ID         string `json:"id"`
}

func (e *removeEffect) add(tx *millrace.Tx) error {
	tx.Collection(e.Collection).Remove(e.ID)
	return nil
}

type taskEffect struct {
	Queue   string          `json:"queue"`
	Kind    string          `json:"kind"`
	Tag     string          `json:"tag"`
	Payload json.RawMessage `json:"payload"`
}

func (e *taskEffect) add(tx *millrace.Tx) error {
	kind := e.Kind
	if kind == "" {
		kind = e.Queue
	}
	var opts []millrace.AddOption
	if e.Tag != "" {
		opts = append(opts, millrace.Tag(e.Tag))
	}
	millrace.Job[json.RawMessage, []byte](kind).Queue(e.Queue).AddTx(tx, e.Payload, opts...)
	return nil
}
