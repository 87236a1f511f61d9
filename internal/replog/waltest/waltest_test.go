package waltest

import "testing"

func TestTornTailsOpenToWholePrefixes(t *testing.T) {
	n := 300
	if testing.Short() {
		n = 20
	}
	for seed := range uint64(2) {
		r, err := Tail(seed, n)
		check(t, r, err, n, "cut", "zeroed", "garbage", "reordered")
	}
}

func TestDamageOfASealedLogIsRefused(t *testing.T) {
	const n = 200
	for seed := range uint64(2) {
		r, err := Sealed(seed, n)
		check(t, r, err, n, "flip", "zeros", "copy", "cut", "removed", "replaced")
	}
}

func check(t *testing.T, r *Report, err error, n int, kinds ...string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range r.Broken {
		t.Error(broken)
	}
	if r.Done != n && len(r.Broken) == 0 {
		t.Errorf("%d of %d were tried", r.Done, n)
	}
	for _, kind := range kinds {
		if r.Kinds[kind] == 0 {
			t.Errorf("no %s in %v", kind, r.Kinds)
		}
	}
}
