package core

import (
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// sampleKeys holds each op on keys that came after the first ones, with every field set and with none.
func sampleKeys() *Entry {
	p := Partition{Tenant: 7, Namespace: 300, Index: 2}
	return &Entry{
		Format: 1, Stamp: 1_700_000_000_123, Proposer: 5<<32 | 1, Seq: 42,
		Commits: []Commit{
			{Partition: p, Principal: "p1", Session: SessionID{1, 15: 2}, Seq: 6, Ops: []Op{&KVPuts{Keyspace: "thumbs", Items: []KVItem{
				{Key: []byte("a"), Value: []byte{0, 0xff}},
				{Key: []byte("b")},
				{Key: []byte("c"), Value: []byte("v"), HasRev: true, IfRev: 900, IfAbsent: true},
				{Key: []byte("d"), HasRev: true},
			}}}},
			{Partition: p, Ops: []Op{
				&KVAdd{Keyspace: "n", Key: []byte("k"), Delta: -5, HasRev: true, IfRev: 7, HasFloor: true, Floor: -9, HasCeiling: true, Ceiling: 9},
				&KVAdd{Keyspace: "n", Key: []byte("l"), HasFloor: true},
				&KVDeleteRange{Keyspace: "n", From: []byte("a"), To: []byte("b"), Prefix: []byte("c"), Count: true},
				&KVDeleteRange{Keyspace: "n"},
			}},
			{Partition: p, Ops: []Op{
				&KeyspaceSet{Keyspace: "n", IfVersion: -1, Config: KeyspaceConfig{Version: 4, Bytes: 1 << 30, WriteRate: 1000, ByteRate: 1 << 20}},
				&KeyspaceDelete{Keyspace: "n"},
				&KeyspaceUse{Items: []SpaceUse{{3, 1 << 31}, {4, 0}}},
			}},
			{Partition: p, Session: SessionID{1, 15: 2}, Seq: 7}, // a number that is used up by nothing
		},
	}
}

// sampleBounds holds what bounds the keyspaces of a namespace together.
func sampleBounds() *Entry {
	p := Partition{Tenant: 7, Namespace: 300, Index: 2}
	return &Entry{Format: 1, Stamp: 1_700_000_000_123, Proposer: 5<<32 | 1, Seq: 43, Commits: []Commit{{Partition: p, Ops: []Op{
		&NamespaceSet{Config: NamespaceConfig{Version: 2, RetainBytes: 1 << 30, KeyBytes: 1 << 40, KeyRate: 1000, KeyByteRate: 1 << 20}, IfVersion: 1},
		&NamespaceSet{Config: NamespaceConfig{KeyRate: 1}, IfVersion: -1},
		&KeyspaceUse{Items: []SpaceUse{{AllKeyspaces, 1 << 41}}},
	}}}}
}

// sampleTenants holds what bounds the keyspaces of a tenant together.
func sampleTenants() *Entry {
	return &Entry{Format: 1, Stamp: 1_700_000_000_123, Proposer: 5<<32 | 1, Seq: 44, Commits: []Commit{
		{Ops: []Op{&TenantSet{Tenant: "acme", Config: TenantConfig{Version: 2, KeyBytes: 1 << 40, KeyRate: 1000, KeyByteRate: 1 << 20}, IfVersion: 1}}},
		{Ops: []Op{&TenantSet{Tenant: "acme", IfVersion: -1}}},
		{Partition: Partition{Tenant: 7, Namespace: 300, Index: 2}, Ops: []Op{&TenantUse{Bytes: 1 << 41, Bound: 1 << 40}}},
	}}
}

func sampleKeyResults() []Result {
	return []Result{
		{Index: 9, Ops: []OpResult{{Kind: OpKVPuts, Rev: 12, KV: &KVResult{Refused: []RefusedItem{
			{1, RevMismatch{Rev: 3}}, {300, TooLarge{"key", "key_bytes", 65536}},
		}}}}},
		{Ops: []OpResult{{Kind: OpKVPuts, Rev: 12}}},
		{Ops: []OpResult{{Kind: OpKVAdd, Rev: 13, KV: &KVResult{Number: -44}}, {Kind: OpKVDeleteRange, KV: &KVResult{Count: 1000}}}},
		{Ops: []OpResult{{Kind: OpKVAdd, Rev: 13, KV: &KVResult{}}}},
		{Refusal: &Refusal{Op: 0, Fact: NotAdded{"bound", 77, "n", []byte("k")}}},
	}
}

func TestGoldenBytesOfOpsOnKeys(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "entry %s\n", hex.EncodeToString(AppendEntry(nil, sampleKeys())))
	for _, r := range sampleKeyResults() {
		fmt.Fprintf(&b, "result %s\n", hex.EncodeToString(AppendResult(nil, &r)))
	}
	fmt.Fprintf(&b, "bounds %s\n", hex.EncodeToString(AppendEntry(nil, sampleBounds())))
	fmt.Fprintf(&b, "tenants %s\n", hex.EncodeToString(AppendEntry(nil, sampleTenants())))
	golden(t, "keys.golden", b.String())
	if e, err := DecodeEntry(AppendEntry(nil, sampleBounds())); err != nil || !reflect.DeepEqual(e, sampleBounds()) {
		t.Errorf("bounds read as %+v, %v", e, err)
	}
	if e, err := DecodeEntry(AppendEntry(nil, sampleTenants())); err != nil || !reflect.DeepEqual(e, sampleTenants()) {
		t.Errorf("tenants read as %+v, %v", e, err)
	}
	e, err := DecodeEntry(AppendEntry(nil, sampleKeys()))
	if err != nil || !reflect.DeepEqual(e, sampleKeys()) {
		t.Errorf("entry reads as %+v, %v", e, err)
	}
	for _, want := range sampleKeyResults() {
		got, err := DecodeResult(AppendResult(nil, &want))
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("result reads as %+v, %v; want %+v", got, err, want)
		}
	}
}

// Keyspaces that keep writers. Without that the bytes of a configuration are those of keys.golden.
func TestGoldenBytesOfKeyspacesThatKeepWriters(t *testing.T) {
	goldenEntry(t, "writers4.golden", &Entry{Format: FormatShare, Stamp: 1_700_000_000_123, Proposer: 5<<32 | 1, Seq: 42, Commits: []Commit{{
		Partition: Partition{Tenant: 7, Namespace: 300, Index: 2}, Ops: []Op{
			&KeyspaceSet{Keyspace: "n", IfVersion: -1, Config: KeyspaceConfig{Version: 4, Bytes: 1 << 30, WriteRate: 1000, ByteRate: 1 << 20, Writers: true}},
			&KeyspaceSet{Keyspace: "n", Config: KeyspaceConfig{Writers: true}},
		},
	}}})
	for _, c := range []KeyspaceConfig{{}, {Version: 1, Writers: true}, {Version: 300, Bytes: 7}} {
		if got, err := DecodeKeyspaceConfig(AppendKeyspaceConfig(nil, &c)); err != nil || got != c {
			t.Errorf("%+v reads as %+v, %v", c, got, err)
		}
	}
}

func TestEncodingsOfOpsOnKeysThatAreCutAreRefused(t *testing.T) {
	whole := AppendEntry(nil, sampleKeys())
	for n := range whole {
		if _, err := DecodeEntry(whole[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("first %d bytes: %v", n, err)
		}
	}
	for _, r := range sampleKeyResults() {
		b := AppendResult(nil, &r)
		for n := range b {
			if _, err := DecodeResult(b[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%+v cut at %d: %v", r, n, err)
			}
		}
	}
}

// A put costs the log its key, its value and a few bytes when the batch holds other puts too.
func TestLogBytesOfAPut(t *testing.T) {
	const items, least = 16, 40
	op := &KVPuts{Keyspace: "bench", Items: make([]KVItem, items)}
	for i := range op.Items {
		op.Items[i] = KVItem{Key: make([]byte, 8), Value: make([]byte, 256)}
	}
	e := &Entry{Format: 1, Stamp: 1_700_000_000_123, Proposer: 1 << 60, Seq: 1 << 20, Commits: []Commit{{
		Partition: Partition{Tenant: 1, Namespace: 1}, Principal: "token-7", Session: SessionID{1}, Seq: 1 << 20, Ops: []Op{op},
	}}}
	if n := len(AppendEntry(nil, e)); n > items*(8+256+least) {
		t.Errorf("%d bytes for %d puts of 264", n, items)
	}
}
