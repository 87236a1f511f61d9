package commit_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
	"github.com/millrace/millrace/internal/machine/commit"
)

// system applies one op in the system partition.
func (w *world) system(t *testing.T, op core.Op) (core.OpResult, core.Fact) {
	t.Helper()
	a, err := w.pair.Apply(core.Commit{Ops: []core.Op{op}})
	if err != nil {
		t.Fatal(err)
	}
	if r := a.Results[0]; r.Refusal != nil {
		return core.OpResult{}, r.Refusal.Fact
	}
	return a.Results[0].Ops[0], nil
}

func TestATenantIsBoundedInTheDirectoryBeforeOrAfterItIsUsed(t *testing.T) {
	w := mustWorld(t)
	bounds := core.TenantConfig{KeyBytes: 100, KeyRate: 5}
	set := func(tenant string, c core.TenantConfig, ifVersion int64) (core.OpResult, core.Fact) {
		return w.system(t, &core.TenantSet{Tenant: tenant, Config: c, IfVersion: ifVersion})
	}
	first, fact := set("acme", bounds, 0)
	if fact != nil || first.Version != 1 || first.Tenant == 0 {
		t.Fatalf("a new tenant: %+v, %v", first, fact)
	}
	made, fact := w.system(t, &core.NamespaceCreate{Tenant: "acme", Name: "shop", Partitions: 1, Shards: 1})
	if fact != nil || made.Tenant != first.Tenant {
		t.Errorf("its first namespace: %+v, %v", made, fact)
	}
	if r, fact := set("acme", bounds, -1); fact != nil || r.Version != 1 {
		t.Errorf("the same again: %+v, %v", r, fact)
	}
	_, fact = set("acme", bounds, 0)
	if f, ok := fact.(core.RevMismatch); !ok || f.Rev != 1 {
		t.Errorf("as if it were new: %v", fact)
	}
	if r, fact := set("acme", core.TenantConfig{KeyByteRate: 7}, 1); fact != nil || r.Version != 2 {
		t.Errorf("another: %+v, %v", r, fact)
	}
	other, _ := w.system(t, &core.NamespaceCreate{Tenant: "other", Name: "shop", Partitions: 1, Shards: 1})
	if _, fact := set("other", bounds, 0); fact != nil {
		t.Errorf("a tenant that is used: %v", fact)
	}
	for field, op := range map[string]*core.TenantSet{
		"tenant":                       {Tenant: "a:b", IfVersion: -1},
		"config.key_bytes":             {Tenant: "acme", Config: core.TenantConfig{KeyBytes: -1}, IfVersion: -1},
		"config.key_writes_per_second": {Tenant: "acme", Config: core.TenantConfig{KeyRate: -1}, IfVersion: -1},
		"config.key_bytes_per_second":  {Tenant: "acme", Config: core.TenantConfig{KeyByteRate: -1}, IfVersion: -1},

		"config.weight":                  {Tenant: "acme", Config: core.TenantConfig{Weight: core.MaxTenantWeight + 1}, IfVersion: -1},
		"config.task_creates_per_second": {Tenant: "acme", Config: core.TenantConfig{CreateRate: -1}, IfVersion: -1},
		"config.streams":                 {Tenant: "acme", Config: core.TenantConfig{Streams: -1}, IfVersion: -1},
		"config.tasks":                   {Tenant: "acme", Config: core.TenantConfig{Tasks: core.TaskBounds{Tasks: -1}}, IfVersion: -1},
		"config.task_bytes":              {Tenant: "acme", Config: core.TenantConfig{Tasks: core.TaskBounds{Bytes: -1}}, IfVersion: -1},
		"config.running_tasks":           {Tenant: "acme", Config: core.TenantConfig{Tasks: core.TaskBounds{Running: -1}}, IfVersion: -1},
	} {
		_, fact := w.system(t, op)
		if f, ok := fact.(core.Invalid); !ok || f.Field != field {
			t.Errorf("%s: %v", field, fact)
		}
	}
	if err := w.pair.Restart(); err != nil {
		t.Fatal(err)
	}
	got := make(map[core.TenantID]core.TenantConfig)
	if err := commit.TenantConfigs(w.pair.TxA, func(id core.TenantID, c core.TenantConfig) { got[id] = c }); err != nil {
		t.Fatal(err)
	}
	bounds.Version = 1
	if want := (core.TenantConfig{Version: 2, KeyByteRate: 7}); len(got) != 2 || got[first.Tenant] != want || got[other.Tenant] != bounds {
		t.Errorf("configured are %+v", got)
	}
	info, err := commit.FindTenant(w.pair.TxA, "acme")
	if err != nil || info.ID != first.Tenant || info.Namespaces != 1 || info.Config.Version != 2 {
		t.Errorf("acme is %+v, %v", info, err)
	}
	if info, err := commit.FindTenant(w.pair.TxA, "nobody"); err != nil || info.ID != 0 {
		t.Errorf("an unknown one is %+v, %v", info, err)
	}
	a, err := w.pair.Apply(core.Commit{Partition: home, Ops: []core.Op{&core.TenantSet{Tenant: "acme", IfVersion: -1}}})
	if err != nil || a.Results[0].Refusal == nil {
		t.Errorf("outside of the directory: %+v, %v", a.Results, err)
	}
}

// A configuration without bounds frees its place, and no condition on a version holds for another configuration.
func TestATenantWithoutBoundsHasNoPlaceAndItsVersionsDoNotComeAgain(t *testing.T) {
	w := mustWorld(t)
	set := func(tenant string, rate, ifVersion int64) (uint64, core.Fact) {
		t.Helper()
		r, fact := w.system(t, &core.TenantSet{Tenant: tenant, Config: core.TenantConfig{KeyRate: rate}, IfVersion: ifVersion})
		return r.Version, fact
	}
	expect := func(what string, tenant string, rate, ifVersion int64, want uint64) {
		t.Helper()
		if got, fact := set(tenant, rate, ifVersion); fact != nil || got != want {
			t.Errorf("%s: version %d, %v, want %d", what, got, fact, want)
		}
	}
	count := func() (n int) {
		t.Helper()
		if err := commit.TenantConfigs(w.pair.TxA, func(core.TenantID, core.TenantConfig) { n++ }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	expect("no bounds, and there were none", "acme", 0, 0, 0)
	expect("a new one", "acme", 5, 0, 1)
	expect("another", "acme", 6, 1, 2)
	expect("a second tenant", "other", 6, 0, 1)
	expect("no bounds", "acme", 0, 2, 0)
	if n := count(); n != 1 {
		t.Errorf("%d are configured", n)
	}
	if err := w.pair.Restart(); err != nil {
		t.Fatal(err)
	}
	expect("no bounds again", "acme", 0, 0, 0)
	info, err := commit.FindTenant(w.pair.TxA, "acme")
	if err != nil || info.ID != 0 || info.Config != (core.TenantConfig{}) {
		t.Errorf("acme is %+v, %v", info, err)
	}
	for _, old := range []int64{1, 2, 3} {
		if _, fact := set("acme", 7, old); fact == nil {
			t.Errorf("as of version %d: %v", old, fact)
		}
	}
	expect("bounds again", "acme", 7, 0, 3)
	for _, old := range []int64{0, 1, 2} {
		if _, fact := set("acme", 8, old); fact == nil {
			t.Errorf("as of version %d, which was removed, it is set", old)
		}
	}
	expect("a third tenant", "third", 1, 0, 3)
	expect("the second goes on", "other", 7, 1, 2)
	expect("and goes", "other", 0, 2, 0)
	expect("and comes", "other", 7, -1, 3)
	if n := count(); n != 3 {
		t.Errorf("%d are configured", n)
	}
}

// What bounds tasks is refused by entries that older programs apply, and bounds on keys are not.
func TestBoundsOnTasksNeedTheirFormat(t *testing.T) {
	w := mustWorld(t)
	for format, want := range map[uint16]string{core.FormatShare - 1: "not_supported", core.FormatShare: ""} {
		ops := []core.Op{&core.TenantSet{Tenant: "acme", Config: core.TenantConfig{KeyRate: 1, Weight: 2}, IfVersion: -1}}
		a, err := w.machine().Apply(w.pair.TxA, 1, &core.Entry{Format: format, Stamp: epoch, Commits: []core.Commit{{Ops: ops}}})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if r := a.Results[0].Refusal; r != nil {
			got = r.Fact.(core.Invalid).Reason
		}
		if got != want {
			t.Errorf("format %d: %q", format, got)
		}
	}
}

func TestEntriesOfTheFirstFormatKeepConfigurationsWithoutBounds(t *testing.T) {
	w := mustWorld(t)
	in := func(format uint16, rate int64) uint64 {
		t.Helper()
		ops := []core.Op{&core.TenantSet{Tenant: "acme", Config: core.TenantConfig{KeyRate: rate}, IfVersion: -1}}
		a, err := w.machine().Apply(w.pair.TxA, 1, &core.Entry{Format: format, Stamp: epoch, Commits: []core.Commit{{Ops: ops}}})
		if err != nil || a.Results[0].Refusal != nil {
			t.Fatal(a.Results, err)
		}
		return a.Results[0].Ops[0].Version
	}
	in(core.FormatFirst, 5)
	if got := in(core.FormatFirst, 0); got != 2 {
		t.Errorf("without bounds: version %d", got)
	}
	if got := in(core.FormatQueues, 0); got != 0 { // the place of one that an older program kept is free too
		t.Errorf("without bounds, in a later entry: version %d", got)
	}
	if got := in(core.FormatQueues, 5); got != 3 {
		t.Errorf("bounds again: version %d", got)
	}
}

func TestTenantsThatAreConfiguredAreBoundedAndLeaveTheirPlaces(t *testing.T) {
	w := mustWorld(t)
	set := func(tenant string, rate int64) core.Fact {
		t.Helper()
		_, fact := w.system(t, &core.TenantSet{Tenant: tenant, Config: core.TenantConfig{KeyRate: rate}, IfVersion: -1})
		return fact
	}
	for _, rate := range []int64{5, 0} { // leaves the row of the highest version, which takes no place
		if fact := set("was", rate); fact != nil {
			t.Fatal(fact)
		}
	}
	row := core.AppendTenantConfig(binary.BigEndian.AppendUint32(nil, 77), &core.TenantConfig{Version: 1, KeyRate: 5})
	const most = 10_000
	for i := range most - 1 {
		for _, tx := range []core.Txn{w.pair.TxA, w.pair.TxB} {
			tx.Set(keys.TenantConfig(fmt.Sprintf("t%d", i)), row)
		}
	}
	if fact := set("last", 5); fact != nil {
		t.Errorf("the last place: %v", fact)
	}
	full := core.Exhausted{Limit: "tenants", Max: most}
	if fact := set("more", 5); fact != full {
		t.Errorf("one more: %v", fact)
	}
	if fact := set("t7", 0); fact != nil {
		t.Errorf("without bounds: %v", fact)
	}
	if fact := set("more", 5); fact != nil {
		t.Errorf("in the place that is free: %v", fact)
	}
	if fact := set("t7", 5); fact != full {
		t.Errorf("with bounds again: %v", fact)
	}
}
