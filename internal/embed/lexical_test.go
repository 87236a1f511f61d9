package embed

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/vector"
)

// goldenTexts are the texts of the golden files, in order.
var goldenTexts = []string{
	"", "a", "need 2 mig welders joliet 2nd shift aws d1.1", "Need 2 MIG welders, Joliet; 2nd shift: AWS D1.1!",
	"Straße ÉCOLE İstanbul", "日本語の文章", "🙂🙂", "x\xffy", strings.Repeat("w", 10000), strings.Repeat("forklift ", 500),
}

// fingerprint writes what a vector is: the hash of its bits and its first three numbers that are not zero.
func fingerprint(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	var first []string
	for i, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		if x != 0 && len(first) < 3 {
			first = append(first, strconv.Itoa(i)+":"+strconv.FormatUint(uint64(math.Float32bits(x)), 16))
		}
	}
	var sum [8]byte
	binary.BigEndian.PutUint64(sum[:], xxhash.Sum64(b))
	return hex.EncodeToString(sum[:]) + " " + strings.Join(first, " ")
}

func TestTheBuiltInModelsGiveTheirFrozenVectors(t *testing.T) {
	for model, vectorOf := range map[string]func(string) ([]float32, int){LexicalModel: Lexical, LexicalV1: lexicalV1} {
		var got strings.Builder
		for _, text := range goldenTexts {
			v, words := vectorOf(text)
			if len(v) != LexicalDim {
				t.Fatalf("%d numbers", len(v))
			}
			if err := vector.Check(v, LexicalDim, true); err != nil {
				t.Errorf("%.40q: %v", text, err)
			}
			shown := text
			if len(shown) > 60 {
				shown = shown[:60]
			}
			got.WriteString(strconv.QuoteToASCII(shown) + " " + strconv.Itoa(words) + " " + fingerprint(v) + "\n")
		}
		want, err := os.ReadFile("testdata/" + model + ".golden")
		if err != nil || got.String() != string(want) {
			t.Errorf("the vectors of %s changed, which users have stored:\n%s\nwant (%v)\n%s", model, got.String(), err, want)
		}
	}
}

// Texts that read the same have one vector, and what is found by a single character or an emoji is near.
func TestTextsThatReadTheSameHaveOneVector(t *testing.T) {
	for _, two := range [][2]string{
		{"Straße", "STRASSE"},
		{"cafe\u0301", "CAFÉ"},
		{"ＡＢＣ", "abc"},
		{"ﬁne", "FINE"},
		{"Οδυσσεύς", "ΟΔΥΣΣΕΥΣ"},
		{"İstanbul", "istanbul"},
		{"\u1112\u1161\u11ab\u1100\u116e\u11a8", "한국"},
		{"ﾊﾛｰ", "ハロー"},
		{"👍🏽", "👍"},
		{"co\u00adoperate", "cooperate"},
	} {
		if s := cosine(two[0], two[1]); math.Abs(s-1) > 1e-6 {
			t.Errorf("%q and %q: %v", two[0], two[1], s)
		}
	}
	for _, c := range [][3]string{{"本", "日本語の文章", "night nurse"}, {"🚀", "launch 🚀 now", "launch it now"}, {"กาแฟ", "ร้านกาแฟเปิด", "ร้านอาหาร"}} {
		if near, far := cosine(c[0], c[1]), cosine(c[0], c[2]); near < 0.2 || near < far+0.1 {
			t.Errorf("%q is %.3f near to %q and %.3f to %q", c[0], near, c[1], far, c[2])
		}
	}
}

// Of texts in ASCII both models give the same, so that what is measured by one holds for the other.
func TestTheBuiltInModelsAgreeOnASCII(t *testing.T) {
	for _, text := range goldenTexts {
		if strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) {
			continue
		}
		one, _ := Lexical(text)
		other, _ := lexicalV1(text)
		if !slices.Equal(one, other) {
			t.Errorf("%.40q: the models differ", text)
		}
	}
}

func cosine(a, b string) float64 {
	x, _ := Lexical(a)
	y, _ := Lexical(b)
	var sum float64
	for i := range x {
		sum += float64(x[i]) * float64(y[i])
	}
	return sum
}

func TestTextsThatShareWordsAreNearerThanOthers(t *testing.T) {
	if s := cosine("MIG welder, Joliet", "mig WELDER joliet"); math.Abs(s-1) > 1e-6 {
		t.Errorf("case and punctuation count: %v", s)
	}
	near, form, far := cosine("mig welder", "mig welder wanted"), cosine("welding", "welder"), cosine("mig welder", "night nurse")
	if !(near > form && form > far+0.1) {
		t.Errorf("same words %.3f, same stem %.3f, nothing in common %.3f", near, form, far)
	}
}

func BenchmarkLexical(b *testing.B) {
	for b.Loop() {
		Lexical("need 2 mig welders joliet 2nd shift aws d1.1 certified with own tools and five years of structural work")
	}
}
