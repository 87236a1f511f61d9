package lint

import (
	"regexp"
	"slices"
	"strings"
)

// licenseForm is how the text of a license is known, in lower case and with one space between words.
type licenseForm struct {
	// id is the identifier of SPDX.
	id string
	// says matches what only texts of this license say.
	says *regexp.Regexp
	// not matches what rules the license out: the text must not say it as well. nil: nothing rules it out.
	not *regexp.Regexp
}

var (
	// apache matches the title of the license, which a short header does not have.
	apache = regexp.MustCompile(`apache license,? version 2\.0, january 2004`)
	// bsd matches how every BSD license begins.
	bsd = regexp.MustCompile(`redistribution and use in source and binary forms, with or without modification`)
	// noName matches the clause that the license with three clauses has, and the one with two lacks.
	noName = regexp.MustCompile(`neither (the )?names? of|the names? of (the author|its contributors) may not be used`)
)

// licenseForms are the licenses that linked modules may have: all let a program be shipped under other terms, as long as
// their texts go with it. A module under another license is a decision that somebody must make.
var licenseForms = []licenseForm{
	{"Apache-2.0", apache, nil},
	{"Apache-2.0", regexp.MustCompile(`licensed under the apache license, version 2\.0`), apache},
	{"BSD-2-Clause", bsd, noName},
	{"BSD-3-Clause", noName, nil},
	{"ISC", regexp.MustCompile(`permission to use, copy, modify, and(/or)? distribute this software for any purpose with or without fee`), nil},
	{"MIT", regexp.MustCompile(`permission is hereby granted, free of charge, to any person obtaining a copy`), nil},
}

// licensesOf names the licenses in a text, in the order of their ids.
func licensesOf(body string) []string {
	// flat has no line breaks, which stand in other places in each copy.
	flat := strings.Join(strings.Fields(strings.ToLower(body)), " ")
	var out []string
	for _, f := range licenseForms {
		if f.says.MatchString(flat) && (f.not == nil || !f.not.MatchString(flat)) {
			out = append(out, f.id)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// licenses names the licenses of all of a module's texts.
func (m *linked) licenses() []string {
	var out []string
	for _, t := range m.texts {
		out = append(out, licensesOf(t.body)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// copyrightLine matches what claims a copyright since a year; templates and terms, which say the word too, have none.
var copyrightLine = regexp.MustCompile(`(?i)^(copyright(\s+(\(c\)|©))?|\(c\)|©),?\s+(19|20)\d\d\b`)

// copyrights returns the copyright lines of a module's texts, as they stand there, each once.
func (m *linked) copyrights() []string {
	var out []string
	for _, t := range m.texts {
		for line := range strings.Lines(t.body) {
			// The marks of comments are not a part of the line.
			line = strings.TrimSpace(strings.Trim(strings.TrimSpace(line), "/*#"))
			if copyrightLine.MatchString(line) && !slices.Contains(out, line) {
				out = append(out, line)
			}
		}
	}
	return out
}
