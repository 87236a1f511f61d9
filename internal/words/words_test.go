package words

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// sames are texts that are one text to who reads them.
var sames = [][]string{
	{"straße", "STRASSE", "Straße", "STRAẞE", "ＳＴＲＡＳＳＥ"},
	{"café", "CAFÉ", "cafe\u0301", "Cafe"},
	{"fine", "ﬁne", "FINE"},
	{"ab12", "ＡＢ１２", "Ab①②"},
	{"οδυσσευσ", "ὈΔΥΣΣΕΎΣ", "Οδυσσεύς"},
	{"istanbul", "İstanbul", "ISTANBUL"},
	{"한국어", "\u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165"},
	{"가", "ㄱㅏ", "ᄀ\u1161"},
	{"ハロー", "ﾊﾛｰ"},
	{"ガ", "ｶﾞ", "カ\u3099"},
	{"株式会社", "㍿"},
	{"елка", "Ёлка", "ЕЛКА"},
	{"שלום", "שָׁלוֹם"},
	{"محمد", "مُحَمَّد"},
	{"cooperate", "co\u00adoperate", "co\u2060operate"},
	{"👍", "👍🏽", "👍\ufe0f"},
	{"x\ufffd", "x\xff"},
	{"ꭰ", "Ꭰ"}, // case of which folding goes upwards
}

func TestTextsThatReadTheSameFoldToTheSame(t *testing.T) {
	for _, list := range sames {
		want := Fold(list[0])
		for _, text := range list {
			got := Fold(text)
			if got != want {
				t.Errorf("%q (%+q) folds to %q, %q to %q", text, text, got, list[0], want)
			}
			if again := Fold(got); again != got || !utf8.ValidString(got) {
				t.Errorf("%q folds to %q, and that to %q", text, got, again)
			}
		}
	}
	for _, two := range [][2]string{{"ガ", "カ"}, {"हिंदी", "हद"}, {"ที่", "ท"}, {"ı", "l"}} {
		if Fold(two[0]) == Fold(two[1]) {
			t.Errorf("%q and %q are one", two[0], two[1])
		}
	}
}

func cut(text string, singles bool) string {
	var list []string
	c := Cutter{Singles: singles}
	for range 2 { // a cutter is used again
		list = list[:0]
		c.Each(text, func(w []byte) { list = append(list, string(w)) })
	}
	return strings.Join(list, " ")
}

func TestTextsAreCutIntoWords(t *testing.T) {
	for _, c := range [][3]string{ // text, words of a query, and of a text that is looked for; empty: the same
		{"", "", ""},
		{"Mig-Welder, AWS D1.1!", "mig welder aws d1 1", ""},
		{"日本語 text 東京x 字", "日本 本語 text 東京 x 字", "日 本 日本 語 本語 text 東 京 東京 x 字"},
		{"한국어 カタカナ", "한국 국어 カタ タカ カナ", "한 국 한국 어 국어 カ タ カタ カ タカ ナ カナ"},
		{"コーヒー", "コー ーヒ ヒー", "コ ー コー ヒ ーヒ ー ヒー"},
		{"ที่นี่", "ที่นี่", "ที่ นี่ ที่นี่"},
		{"हिन्दी भाषा", "हिन्दी भाषा", ""},
		{"🚀 go🚀fast 👩\u200d🔧 👍🏽", "🚀 go 🚀 fast 👩 🔧 👍", ""},
		{"🇩🇪🇩🇰 🇫", "🇩🇪 🇩🇰 🇫", ""},
		{"a\xffb \u0301 ٣", "a b ٣", ""},
		{"สวย\u200bงาม", "สว วย งา าม", "ส ว สว ย วย ง า งา ม าม"},
		{"i", "i", ""},
		{"本", "本", ""},
	} {
		if got := cut(c[0], false); got != c[1] {
			t.Errorf("%q as a query: %q, want %q", c[0], got, c[1])
		}
		want := c[2]
		if want == "" {
			want = c[1]
		}
		if got := cut(c[0], true); got != want {
			t.Errorf("%q: %q, want %q", c[0], got, want)
		}
	}
}

// FuzzWords holds what words are of any text: folded, not empty, and the same as those of the folded text; and that each word of a
// query is one of the text.
func FuzzWords(f *testing.F) {
	for _, list := range sames {
		for _, text := range list {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if cut(text, true) != cut(Fold(text), true) {
			t.Errorf("%q and %q have other words", text, Fold(text))
		}
		has := map[string]bool{}
		for w := range strings.SplitSeq(cut(text, true), " ") {
			has[w] = true
		}
		for w := range strings.SplitSeq(cut(text, false), " ") {
			if !has[w] {
				t.Errorf("%q: %q is a word of the query and not of the text", text, w)
			}
			if w != Fold(w) {
				t.Errorf("%q: the word %q folds to %q", text, w, Fold(w))
			}
		}
	})
}

func BenchmarkWords(b *testing.B) {
	for name, text := range map[string]string{
		"ascii": "need 2 mig welders joliet 2nd shift aws d1.1 certified with own tools", "latin": "Schweißer für Straßenbau gesucht, Köln, Nachtschicht möglich",
		"japanese": "東京で溶接工を募集しています。夜勤あり",
	} {
		b.Run(name, func(b *testing.B) {
			c := Cutter{Singles: true}
			for b.Loop() {
				c.Each(text, func([]byte) {})
			}
		})
	}
}
