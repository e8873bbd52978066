// Writes one heap profile twice, as protobuf and as text, in the same moment:
//
//	GO111MODULE=off go build -trimpath -o /usr/local/bin/ledger ledger.go
//	ledger ../foreign/go-text/ledger.heap.txt ../foreign/go-text/ledger.heap.pb.gz
package main

import (
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
)

type entry struct {
	text string
	next *entry
	more [10]int
}

type book[T any] struct{ pages []T }

func (b *book[T]) write(page T) { b.pages = append(b.pages, page) }

// line is inlined into post, post into fill.
func line(n int) string           { return strings.Repeat("x", 100+n%50) }
func post(e *entry, n int) *entry { return &entry{text: line(n), next: e} }

//go:noinline
func fill(n int) (e *entry) {
	for i := 0; i < n; i++ {
		e = post(e, i)
	}
	return e
}

//go:noinline
func nested(depth int) []*entry {
	if depth == 0 {
		return []*entry{fill(50)}
	}
	return append(nested(depth-1), fill(10))
}

var keep []any

func main() {
	runtime.MemProfileRate = 2048
	keep = append(keep, fill(4000), nested(5))
	b := &book[[512]byte]{}
	for i := 0; i < 300; i++ {
		b.write([512]byte{})
	}
	keep = append(keep, b)
	done := make(chan *entry)
	go func() { done <- fill(500) }()
	keep = append(keep, <-done)
	for i := 0; i < 3; i++ {
		fill(1000) // freed
	}
	runtime.GC()
	runtime.GC()
	for i, path := range os.Args[1:] {
		file, err := os.Create(path)
		if err == nil {
			err = pprof.Lookup("heap").WriteTo(file, 1-i)
		}
		if err != nil {
			panic(err)
		}
		file.Close()
	}
	runtime.KeepAlive(keep)
}
