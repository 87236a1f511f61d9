package core

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
)

// What bounds a tenant from format 4 on, and what its partitions are told. Without any of it the bytes are those of before.
func TestGoldenBytesOfQuotasOfTenants(t *testing.T) {
	p := Partition{Tenant: 7, Namespace: 300, Index: 2}
	entries := []*Entry{
		{Format: FormatShare, Stamp: 1, Proposer: 2, Seq: 3, Commits: []Commit{{Ops: []Op{
			&TenantSet{Tenant: "acme", IfVersion: -1, Config: TenantConfig{
				Version: 2, KeyRate: 3, Weight: 4, CreateRate: 5, Streams: 6, Tasks: TaskBounds{Tasks: 7, Bytes: 1 << 36, Running: 9},
			}},
		}}, {Partition: p, Ops: []Op{
			&TenantQuota{Bounds: TaskBounds{1, 2, 3}, Others: TaskUse{4, 5, 6}}, &TenantQuota{Others: TaskUse{Running: 7}}, &TenantQuota{},
		}}}},
		{Format: FormatShare, Stamp: 1, Proposer: 2, Seq: 3, Commits: []Commit{{Ops: []Op{&TenantSet{Tenant: "acme", Config: TenantConfig{KeyBytes: 1}}}}}},
	}
	var lines []string
	for _, e := range entries {
		raw := AppendEntry(nil, e)
		lines = append(lines, hex.EncodeToString(raw))
		if got, err := DecodeEntry(raw); err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("read back as %+v, %v", got, err)
		}
		for i := range e.Commits {
			if n := e.Commits[i].EncodedSize(); n < len(AppendEntry(nil, &Entry{Commits: e.Commits[i : i+1]}))-16 {
				t.Errorf("commit %d is taken for %d bytes", i, n)
			}
		}
	}
	got := strings.Join(lines, "\n") + "\n"
	golden(t, "tenants4.golden", got)
}
