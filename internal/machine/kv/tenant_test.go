package kv_test

import (
	"encoding/hex"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/machine/kv"
	"github.com/millrace/millrace/internal/machine/machinetest"
)

func TestAPartitionThatIsToldThatItsTenantIsOverItsBoundTakesNoPuts(t *testing.T) {
	tx := machinetest.NewTxn()
	m := open(t, tx)
	within := &core.ApplyContext{Rev: 1}
	try := func(op core.Op) core.Fact {
		t.Helper()
		_, fact, err := m.Apply(tx, within, op)
		if err != nil {
			t.Fatal(err)
		}
		return fact
	}
	try(put("ks", "a", "v"))
	over := core.TenantUse{Bytes: 101, Bound: 100}
	m.Mark()
	try(&over)
	m.Undo()
	if fact := try(put("ks", "a", "v")); fact != nil || m.Tenant() != (core.TenantUse{}) {
		t.Errorf("a put after a commit that was taken back: %v, %+v", fact, m.Tenant())
	}
	try(&over)
	m = open(t, tx) // as after a restart
	full := core.Fact(core.Exhausted{Limit: "tenant_key_bytes", Max: 100})
	for name, op := range map[string]core.Op{
		"a put": put("ks", "b", "v"), "an addition": &core.KVAdd{Keyspace: "ks", Key: []byte("n"), Delta: 1},
		"a put that makes a keyspace": put("other", "a", "v"),
	} {
		if fact := try(op); fact != full {
			t.Errorf("%s: %v", name, fact)
		}
	}
	if _, fact, err := m.Apply(tx, within, &core.KVPuts{Keyspace: "ks", Items: []core.KVItem{item("b", "v")}}); fact != full || err != nil {
		t.Errorf("a batch: %v, %v", fact, err)
	}
	for name, op := range map[string]core.Op{
		"a delete": &core.KVDelete{Keyspace: "ks", Key: []byte("a")}, "the delete of a range": &core.KVDeleteRange{Keyspace: "ks"},
		"a measurement of the namespace": &core.KeyspaceUse{Items: []core.SpaceUse{{Bytes: 7}}},
	} {
		if fact := try(op); fact != nil {
			t.Errorf("%s: %v", name, fact)
		}
	}
	if m = open(t, tx); m.Tenant() != over || m.Used() != 7 {
		t.Errorf("known are %+v and %d", m.Tenant(), m.Used())
	}
	if row, _, _ := tx.Get(keys.Keyspace(part, "")); hex.EncodeToString(row) != "00000001"+"07"+"64"+"65" {
		t.Errorf("the stored form changed: %x", row)
	}
	try(&core.TenantUse{Bytes: 100, Bound: 100})
	if fact := try(put("ks", "b", "v")); fact != nil {
		t.Errorf("a put at the bound: %v", fact)
	}
	try(&over)
	try(&core.TenantUse{})
	if m = open(t, tx); m.Tenant() != (core.TenantUse{}) || m.Used() != 7 {
		t.Errorf("without a bound, known are %+v and %d", m.Tenant(), m.Used())
	}
}

func TestARowOfCountsThatMakesNoSenseStopsTheShard(t *testing.T) {
	for _, row := range []string{"\x00\x00\x00", "\x00\x00\x00\x01\x00", "\x00\x00\x00\x01\x05\x00", "\x00\x00\x00\x01\x05\x07", "\x00\x00\x00\x01\x05\x07\x08\x09"} {
		tx := machinetest.NewTxn()
		tx.Set(keys.Keyspace(part, ""), []byte(row))
		if err := kv.New(part).Open(tx); err == nil {
			t.Errorf("%x is read", row)
		}
	}
}
