//go:build !noui

package ui

import (
	"embed"
	"io/fs"
)

//go:embed dist/*
var dist embed.FS

// Files returns the built files of the web interface: index.html, and what it loads. A build with the tag noui has none.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the name of the folder is a constant, and valid
	}
	return files
}
