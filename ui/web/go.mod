// This file keeps the sources of the web UI out of the module github.com/millrace/millrace, its patterns and its archive.
module github.com/millrace/millrace/ui/web

go 1.26
