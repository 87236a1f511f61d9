//go:build mutants

package checktest

import "testing"

// The histories prove something only if they find what is planted.
func TestTheModelCatchesPlantedBugs(t *testing.T) {
	for _, name := range []string{
		"no_fence", "effects_in_second_entry", "dedup_lost_on_restart", "idempotency_key_without_tenant",
	} {
		found := false
		for seed := uint64(0); seed < 60 && !found; seed++ {
			_, err := Run(Options{Seed: seed, Entries: 500, Mutant: func(s string) bool { return s == name }})
			if found = err != nil; found {
				t.Logf("%s: seed %d: %v", name, seed, err)
			}
		}
		if !found {
			t.Errorf("%s was not found", name)
		}
	}
}
