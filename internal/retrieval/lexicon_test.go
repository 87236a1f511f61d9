package retrieval

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/vector"
)

// How texts are folded and cut is told in package words.
func TestWordsOfPointsAndQueries(t *testing.T) {
	schema, err := NewSchema(nil)
	if err != nil {
		t.Fatal(err)
	}
	schema.texts = []core.TextField{{Name: "a", Weight: 200}, {Name: "b", Weight: 100}}
	got := map[string]int{}
	words := schema.spell([]byte(`{"a":"Straße 日本","b":"STRASSE 🚀"}`))
	for _, w := range words.words {
		got[w.word] = int(w.n)
	}
	if want := map[string]int{"strasse": 3, "日": 2, "本": 2, "日本": 2, "🚀": 1}; !maps.Equal(got, want) || words.length != 10 {
		t.Errorf("%v of %d, want %v", got, words.length, want)
	}
	long := strings.Repeat("x", 10_000)
	if one, other := QueryWords(long), QueryWords(long+"y"); len(one) != 1 || len(one[0]) > longWord || one[0] == other[0] {
		t.Errorf("long words: %q and %q", one, other)
	}
	if got := QueryWords("b a B á 日本 本"); !slices.Equal(got, []string{"b", "a", "日本", "本"}) {
		t.Errorf("words of a query: %q", got)
	}
}

// Texts are found by what reads the same, by a character of a script without spaces, and by an emoji.
func TestTextsAreFoundByWhatReadsTheSame(t *testing.T) {
	x, err := NewIndex(&core.Collection{Dim: testDim, Texts: []core.TextField{{Name: "text", Weight: 100}}}, vector.Kernels()[0])
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{
		"de": "Straße nach Köln", "ja": "日本語の文章", "kana": "コーヒー", "ko": "한국어 검색", "th": "ร้านกาแฟเปิด", "emoji": "launch 🚀 now",
		"el": "Οδυσσεύς", "tr": "İzmir", "wide": "ＡＢＣ１２", "plain": "nothing of all that",
	}
	r := rand.New(rand.NewPCG(1, 1))
	for id, text := range texts {
		payload, err := json.Marshal(map[string]string{"text": text})
		if err != nil {
			t.Fatal(err)
		}
		apply(t, x, point(id, string(payload), randomVector(r)...))
	}
	for query, want := range map[string]string{
		"STRASSE": "de", "koln": "de", "本": "ja", "文": "ja", "本語": "ja", "ｺｰﾋｰ": "kana", "ー": "kana", "검": "ko", "\u1112\u1161\u11ab\u1100\u116e\u11a8": "ko",
		"กาแฟ": "th", "🚀": "emoji", "ΟΔΥΣΣΕΥΣ": "el", "izmir": "tr", "abc12": "wide",
	} {
		a := find(t, x, func(q *Request) { q.Words, q.WordWeight, q.DenseWeight, q.K = QueryWords(query), 1, 0, 3 })
		if len(a.Results) == 0 || a.Results[0].ID != want || a.Results[0].Lexical <= 0 {
			t.Errorf("%q: %s, want %s first", query, idsOf(a), want)
		}
	}
}

// written are words as texts have them, what a query knows them by, and what a point does, if that is another thing.
var written = [][3]string{
	{"Café", "cafe", ""},
	{"CAFE\u0301", "cafe", ""},
	{"日本", "日本", "日 本 日本"},
	{"🚀", "🚀", ""},
	{"weld", "weld", ""},
	{"Weld", "weld", ""},
	{"nurse", "nurse", ""},
	{"ICU,", "icu", ""},
	{strings.Repeat("long", 2500), "long…", ""},
	{"São", "sao", ""},
	{"shift", "shift", ""},
	{"second", "second", ""},
	{"D1", "d1", ""},
	{"и", "и", ""},
	{"forklift", "forklift", ""},
	{"—", "", ""},
}

// plainBM25 is the formula, of all texts at once, by the words that they were made of.
func plainBM25(texts map[string][]string, query []string) map[string]float64 {
	n, length := float64(len(texts)), 0.0
	for _, words := range texts {
		length += float64(len(words))
	}
	out, most := make(map[string]float64), 0.0
	var asked []string
	for _, w := range query {
		df := 0.0
		for _, words := range texts {
			if slices.Contains(words, w) {
				df++
			}
		}
		if df == 0 || slices.Contains(asked, w) {
			continue
		}
		asked = append(asked, w)
		idf := math.Log(1 + (n-df+0.5)/(df+0.5))
		most += idf
		for id, words := range texts {
			tf := 0.0
			for _, other := range words {
				if other == w {
					tf++
				}
			}
			out[id] += idf * tf / (tf + 1.2*(1-0.75+0.75*float64(len(words))/(length/n)))
		}
	}
	for id := range out {
		out[id] /= most
	}
	return out
}

type wordWorld struct {
	t       *testing.T
	r       *rand.Rand
	x       *Index
	texts   map[string][]string
	vectors map[string][]float32
}

func (w *wordWorld) sentence(most int) (text string, asked, told []string) {
	var parts []string
	for range w.r.IntN(most) {
		i := w.r.IntN(len(written))
		if w.r.IntN(3) > 0 {
			i = w.r.IntN(5)
		}
		parts = append(parts, written[i][0])
		asked = append(asked, strings.Fields(written[i][1])...)
		told = append(told, strings.Fields(cmp.Or(written[i][2], written[i][1]))...)
	}
	return strings.Join(parts, " "), asked, told
}

func (w *wordWorld) put(id string) {
	text, _, words := w.sentence(12)
	payload, err := json.Marshal(map[string]any{"text": text, "years": w.r.IntN(10)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.texts[id], w.vectors[id] = words, randomVector(w.r)
	apply(w.t, w.x, point(id, string(payload), w.vectors[id]...))
}

func newWordWorld(t *testing.T, points int) *wordWorld {
	t.Helper()
	x, err := NewIndex(&core.Collection{Dim: testDim, Fields: testFields, Texts: []core.TextField{{Name: "text", Weight: 100}}}, vector.Kernels()[0])
	if err != nil {
		t.Fatal(err)
	}
	w := &wordWorld{t: t, r: rand.New(rand.NewPCG(8, 8)), x: x, texts: map[string][]string{}, vectors: map[string][]float32{}}
	for i := range points {
		w.put(numbered("w", i))
	}
	for i := range points / 2 { // some change, some go
		if id := numbered("w", w.r.IntN(points)); i%3 == 0 {
			apply(t, x, Change{ID: id, Gone: true})
			delete(w.texts, id)
		} else {
			w.put(id)
		}
	}
	return w
}

// check holds an answer to one query against the formula, rows that it leaves out included.
func (w *wordWorld) check(change func(q *Request)) Plan {
	t := w.t
	t.Helper()
	text, words, _ := w.sentence(7)
	a := find(t, w.x, func(q *Request) {
		q.Words, q.WordWeight, q.DenseWeight, q.K = QueryWords(text), 0.75, 0.25, 1000
		q.Query = vector.NewQuery(randomVector(w.r))
		change(q)
	})
	want := plainBM25(w.texts, words)
	for i, r := range a.Results {
		if math.Abs(r.Lexical-want[r.ID]) > 1e-12 || r.Lexical < 0 || r.Lexical >= 1 {
			t.Fatalf("%q: %s has %v, want %v", text, r.ID, r.Lexical, want[r.ID])
		}
		if sum := Round(0.25*r.Dense + 0.75*r.Lexical); sum != r.Score {
			t.Fatalf("%q: %s has the score %v of %v and %v", text, r.ID, r.Score, r.Dense, r.Lexical)
		}
		if i > 0 && a.Results[i-1].Score < r.Score {
			t.Fatalf("%q: %s is behind a worse one", text, r.ID)
		}
	}
	return a.Plan
}

// MILLRACE_WORD_TEXTS makes more texts.
func TestTextsScoreAsTheFormulaSaysUnderEveryGateAndPlan(t *testing.T) {
	points := 300
	if s := os.Getenv("MILLRACE_WORD_TEXTS"); s != "" {
		if _, err := fmt.Sscan(s, &points); err != nil {
			t.Fatal(err)
		}
	}
	w := newWordWorld(t, points)
	ids := slices.Sorted(maps.Keys(w.texts))
	for i := range 60 {
		w.check(func(q *Request) {
			switch i % 4 {
			case 1:
				q.Gate.IDsIn, q.Gate.HasIDsIn = ids[:1+w.r.IntN(20)], true
			case 2:
				q.Gate.Filter = fmt.Sprintf("years > %d", w.r.IntN(10))
			case 3:
				q.Exact, q.K = true, 10
			}
		})
		if i == 30 && !w.x.Compact(nil) {
			t.Fatal("the index was not rebuilt")
		}
	}
	w.x.scan = 10 * testDim // ten rows are large
	w.x.Tend(func() bool { return false })
	walks := 0
	for range 30 {
		if plan := w.check(func(q *Request) { q.K = 5 }); plan == PlanWalk {
			walks++
		}
		w.put(numbered("new", w.r.IntN(50))) // which the graph does not have
	}
	if walks < 20 {
		t.Errorf("%d walks", walks)
	}
}

// The best by the sum are found though they are not near: by the scan exactly, by a walk nearly always.
func TestCandidatesAreTheBestByTheSumOfNearnessAndWords(t *testing.T) {
	w := newWordWorld(t, 600)
	measure := func(plan Plan) float64 {
		found, all := 0, 0
		for range 40 {
			text, _, _ := w.sentence(6)
			if len(QueryWords(text)) == 0 {
				continue
			}
			q := vector.NewQuery(randomVector(w.r))
			ask := func(exact bool) *Answer {
				return find(t, w.x, func(s *Request) {
					s.Query, s.Words, s.WordWeight, s.DenseWeight, s.Exact = q, QueryWords(text), 0.5, 0.5, exact
				})
			}
			got, want := ask(false), ask(true)
			if got.Plan != plan || len(got.Results) != len(want.Results) {
				t.Fatalf("plan %s, %d of %d results", got.Plan, len(got.Results), len(want.Results))
			}
			for _, r := range want.Results {
				all++
				if slices.ContainsFunc(got.Results, func(o Result) bool { return o.ID == r.ID && o.Score == r.Score }) {
					found++
				}
			}
		}
		return float64(found) / float64(all)
	}
	if recall := measure(PlanScan); recall != 1 {
		t.Errorf("recall of the scan is %v", recall)
	}
	w.x.scan = 10 * testDim
	w.x.Tend(func() bool { return false })
	if recall := measure(PlanWalk); recall < 0.98 {
		t.Errorf("recall of the walk is %v", recall)
	}
}

// A stricter gate changes no score, whichever way words are looked up.
func TestWordsScoreTheSameByRowAndByWord(t *testing.T) {
	w := newWordWorld(t, 400)
	text, _, _ := w.sentence(9)
	lex := &lexical{words: QueryWords(text)}
	var buf scratch
	w.x.mu.RLock()
	v := w.x.in.snapshot()
	lex.capture(w.x.in)
	w.x.mu.RUnlock()
	sums := slices.Clone(lex.sums(&v, &buf))
	some := 0
	for row := range sums {
		one := lex.score(&v, uint32(row))
		if one > 0 {
			some++
		}
		if one != sums[row]/max(lex.most, 1e-300) && lex.most > 0 {
			t.Fatalf("row %d: %v by its words, %v by theirs", row, one, sums[row]/lex.most)
		}
		if got := lex.extras(&v, []uint32{uint32(row)}, 0.5, &buf); got[0] != float32(0.5*one) {
			t.Fatalf("row %d: extra %v of %v", row, got[0], one)
		}
	}
	if some == 0 {
		t.Error("no row has a word")
	}
}

// BenchmarkWords5k is what words add to a search: of 5,000 rows that all pass, and of two hundred.
func BenchmarkWords5k(b *testing.B) {
	x, err := NewIndex(&core.Collection{Dim: 384, Fields: testFields, Texts: []core.TextField{{Name: "text", Weight: 100}}}, vector.Kernels()[0])
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 3))
	var batch []Change
	var some []string
	for i := range 5000 {
		var words []string
		for j := range 18 { // some of them in every text, others in a few
			words = append(words, fmt.Sprintf("word%dx%d", j, r.IntN(1+j*j)))
		}
		v := make([]float32, 384)
		v[r.IntN(384)] = 1
		p := point(numbered("w", i), `{"text":"`+strings.Join(words, " ")+`"}`)
		p.Vector = packed(v)
		if batch = append(batch, p); i%24 == 0 {
			some = append(some, p.ID)
		}
	}
	if err := x.Apply(batch); err != nil {
		b.Fatal(err)
	}
	v := make([]float32, 384)
	v[0] = 1
	for _, c := range []struct {
		name   string
		ids    []string
		weight float64
	}{{"all", nil, 0.1}, {"all-without-words", nil, 0}, {"some", some, 0.1}, {"some-without-words", some, 0}} {
		b.Run(c.name, func(b *testing.B) {
			q := &Request{
				Query: vector.NewQuery(v), K: 10, DenseWeight: 1, Words: QueryWords("need word0x0 word1x0 word3x2 word5x9 word8x7 word9x1 word12x3 word15x1"), WordWeight: c.weight,
				Gate: Gate{ValidAt: noon, IDsIn: c.ids, HasIDsIn: c.ids != nil},
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := x.Search(q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
