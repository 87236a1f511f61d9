package core

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// kindsInSource reads the constants of type OpKind from the source of this package: their names by number, and which of them
// are reserved.
func kindsInSource(t *testing.T) (names map[OpKind]string, reserved map[OpKind]bool) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	names, reserved = map[OpKind]string{}, map[OpKind]bool{}
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "OpKind" || len(spec.Values) != 1 {
				return true
			}
			n64, err := strconv.ParseUint(spec.Values[0].(*ast.BasicLit).Value, 10, 8)
			if err != nil {
				t.Fatalf("%s: %v", spec.Names[0].Name, err)
			}
			kind := OpKind(n64)
			if other, twice := names[kind]; twice {
				t.Errorf("%s and %s have number %d both", other, spec.Names[0].Name, kind)
			}
			names[kind] = spec.Names[0].Name
			reserved[kind] = strings.HasPrefix(spec.Comment.Text(), "reserved")
			return true
		})
	}
	return names, reserved
}

func TestEachKindThatIsNotReservedHasARow(t *testing.T) {
	names, reserved := kindsInSource(t)
	if len(names) < 60 {
		t.Fatalf("found %d kinds in the source", len(names))
	}
	said := map[string]OpKind{}
	for k, row := range opRows {
		kind := OpKind(k)
		switch name, known := names[kind]; {
		case row == opRow{}:
			if known && !reserved[kind] {
				t.Errorf("%s has no row", name)
			}
		case !known, reserved[kind]:
			t.Errorf("kind %d has a row (%s), and is not the number of an op", kind, row.name)
		case row.name == "" || row.service == ServiceNone:
			t.Errorf("the row of %s has no name or no service", name)
		case said[row.name] != 0:
			t.Errorf("%s and %s have one name", name, names[said[row.name]])
		default:
			said[row.name] = kind
		}
	}
}

// A kind with a trait whose type lacks the method would stop the shard; a type with a method whose kind lacks the trait would be
// passed over in silence.
func TestTraitsAndMethodsOfOpsAgree(t *testing.T) {
	there := map[OpKind]bool{}
	for _, op := range allOps() {
		kind := op.Kind()
		if there[kind] {
			t.Errorf("%s stands twice in the list", kind.Name())
		}
		there[kind] = true
		_, settles := op.(settler)
		_, names := op.(taskNamer)
		_, one := op.(oneWriter)
		_, keys := op.(keysWriter)
		_, placed := op.(placer)
		_, repo := op.(repoNamer)
		for _, c := range []struct {
			what          string
			trait, method bool
		}{
			{"settles", kind.Has(OpSettles), settles},
			{"names a task", kind.Has(OpNamesTask), names},
			{"writes one", kind.Has(OpWritesOne), one},
			{"writes keys", kind.Has(OpWritesKeys), keys},
			{"is placed", kind.Has(OpPlaced), placed},
			{"is about a repository", kind.Service() == ServiceRefs, repo},
		} {
			if c.trait != c.method {
				t.Errorf("%T %s: by its row %v, by its methods %v", op, c.what, c.trait, c.method)
			}
		}
		if kind.Has(OpPutsKeys) && !kind.Has(OpWritesKeys) {
			t.Errorf("%T puts values and writes no keys", op)
		}
	}
	for k, row := range opRows {
		if row.service != ServiceNone && row.service != ServiceInTxn && !there[OpKind(k)] {
			t.Errorf("%s has a row and is not in the list of allOps", row.name)
		}
	}
}

func TestFunctionsOfOpsReturnWhatTheValueSays(t *testing.T) {
	task, key := NewTaskID(1, 2, [9]byte{3}), []byte("{a}k")
	if h, ok := Settled(&TaskFail{Task: task, Token: 7}); !ok || h != (TaskHold{Task: task, Token: 7}) {
		t.Errorf("the fail settles %v, %v", h, ok)
	}
	if _, ok := Settled(&TaskDelete{Task: task}); ok {
		t.Error("a removal of a task ends an attempt")
	}
	if id, ok := TaskOf(&TaskDelete{Task: task}); !ok || id != task {
		t.Errorf("the removal is of task %s, %v", id, ok)
	}
	if w, ok := WrittenBy(&KVAdd{Keyspace: "ks", Key: key}); !ok || !reflect.DeepEqual(w, WrittenOne{ServiceKV, "ks", key}) {
		t.Errorf("the add writes %v, %v", w, ok)
	}
	if _, ok := WrittenBy(&KVCheck{Keyspace: "ks", Key: key}); ok {
		t.Error("a check writes a key")
	}
	puts := &KVPuts{Keyspace: "ks", Items: []KVItem{{Key: key, Value: key}, {Key: key}}}
	if w, ok := KeysOf(puts); !ok || w != (KeysWritten{"ks", 2, 12}) {
		t.Errorf("the puts change %v, %v", w, ok)
	}
	if name, ok := RepoOf(&PackSwap{Repo: "r"}); !ok || name != "r" {
		t.Errorf("the swap is about %q, %v", name, ok)
	}
	for _, c := range []struct {
		op   Op
		want uint16
		one  bool
	}{
		{&KVDelete{Key: key}, PlaceKey(key, 9), true},
		{&VectorDelete{ID: string(key)}, PlacePoint(string(key), 9), true},
		{&RefTxn{Repo: "r", Tag: "t"}, PlaceRepo("r", "t", 9), true},
		{&KVDeleteRange{Prefix: key}, PlaceKey(key, 9), true},
		{&KVDeleteRange{From: []byte("a"), To: []byte("b")}, 0, false},
		{&Tick{}, 0, false},
	} {
		if got, one := PlaceOf(c.op, 9); got != c.want || one != c.one {
			t.Errorf("%T belongs to %d, %v; want %d, %v", c.op, got, one, c.want, c.one)
		}
	}
	if !Grows(&KVPut{}) || Grows(&KVDelete{}) || Grows(&RefTxn{}) || !Grows(&RefTxn{Packs: make([]Pack, 1)}) {
		t.Error("what grows is told wrong")
	}
	if OpKind(255).Name() != "" || OpKVMin.Service() != ServiceNone || OpTick.Home() != HomeShard {
		t.Error("a row says something else than it was given")
	}
}
