package commit_test

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
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
