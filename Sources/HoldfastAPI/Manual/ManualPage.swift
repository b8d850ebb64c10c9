/// An HTML page of the manual: an article, or the results of a search.
struct ManualPage {
    /// The path of the page below `/manual/`, such as `Flags` or `Client/Flags`. Links are relative to it, so that a
    /// proxy may serve Holdfast below a path.
    private let topic: String
    /// The content of the element `main`.
    private var html = ""

    /// Returns the page of an article. The landing page has the topic `Holdfast`.
    ///
    /// - Throws: ``Markdown/Unsupported``.
    static func article(_ article: Manual.Article) throws -> String {
        var page = ManualPage(topic: article.topic)
        let blocks = try Markdown(article.markdown).blocks
        page.append(contentsOf: blocks)
        return page.finished(title: article.title)
    }

    /// Returns the page with the results of a search.
    static func search(_ query: String) -> String {
        var page = ManualPage(topic: "Holdfast")
        let hits = Manual.search(query, limit: 50)
        page.html += "<h1>\(escaped("Search: \(query)"))</h1>"
        if hits.isEmpty {
            page.html += "<p>No section of the manual has all of these words.</p>"
        }
        page.html += "<dl>"
        for hit in hits {
            let anchor = anchor(of: hit.heading)
            let title = hit.heading == hit.article.title ? hit.heading : "\(hit.article.title): \(hit.heading)"
            page.html += """
                <dt><a href="\(escaped(hit.article.topic))#\(escaped(anchor))">\(escaped(title))</a></dt>
                <dd>\(escaped(hit.line))</dd>
                """
        }
        page.html += "</dl>"
        return page.finished(title: "Search", query: query)
    }

    /// Returns the anchor of a heading, in the form that code hosts use.
    static func anchor(of heading: String) -> String {
        String(
            heading.lowercased().compactMap { character -> Character? in
                if character == " " { return "-" }
                return character.isLetter || character.isNumber || character == "-" || character == "_"
                    ? character : nil
            })
    }

    private init(topic: String) { self.topic = topic }

    /// The beginning of links to pages below `/manual/`.
    private var base: String { topic.hasPrefix("Client/") ? "../" : "" }

    /// Returns the whole page, with the search field and the list of articles around the content.
    private func finished(title: String, query: String = "") -> String {
        let parts = Manual.parts.map { part in
            let links = part.articles.map { article in
                let current = article.topic == topic ? #" aria-current="page""# : ""
                return #"<li><a href="\#(base)\#(article.topic)"\#(current)>\#(Self.escaped(article.title))</a></li>"#
            }
            return "<h2>\(part.title)</h2><ul>\(links.joined())</ul>"
        }
        return """
            <!doctype html>
            <html lang="en">
            <head>
            <meta charset="utf-8">
            <meta name="viewport" content="width=device-width, initial-scale=1">
            <title>\(Self.escaped(title)) – Holdfast</title>
            <link rel="stylesheet" href="\(base)style.css">
            </head>
            <body>
            <header>
            <a href="\(base)./">Holdfast: the manual</a>
            <form action="\(base)./" role="search">
            <input type="search" name="q" value="\(Self.escaped(query))" aria-label="Words" required><button>Search</button>
            </form>
            </header>
            <main>
            \(html)
            </main>
            <nav aria-label="Articles">\(parts.joined())</nav>
            </body>
            </html>

            """
    }

    // MARK: Blocks

    private mutating func append(contentsOf blocks: [Markdown.Block]) {
        for block in blocks { append(block) }
    }

    private mutating func append(_ block: Markdown.Block) {
        switch block {
        case .heading(let level, let inlines):
            let id = Self.escaped(Self.anchor(of: Self.plain(inlines)))
            html += #"<h\#(level) id="\#(id)">\#(rendered(inlines))</h\#(level)>"#
        case .paragraph(let inlines): html += "<p>\(rendered(inlines))</p>"
        case .note(let inlines): html += "<blockquote><p>\(rendered(inlines))</p></blockquote>"
        case .code(let text):
            html += #"<pre tabindex="0"><code>"# + Self.escaped(text) + "</code></pre>"
        case .image(let alternative, let file):
            html += #"<p><img src="\#(base)\#(Self.escaped(file))" alt="\#(Self.escaped(alternative))"></p>"#
        case .list(let isNumbered, let items):
            let tag = isNumbered ? "ol" : "ul"
            html += "<\(tag)>"
            for item in items {
                html += "<li>"
                // An item with a single paragraph has no margin.
                if case .paragraph(let inlines) = item.first {
                    html += rendered(inlines)
                    append(contentsOf: Array(item.dropFirst()))
                } else {
                    append(contentsOf: item)
                }
                html += "</li>"
            }
            html += "</\(tag)>"
        case .table(let rows):
            html += #"<div class="table" tabindex="0"><table>"#
            for (index, row) in rows.enumerated() {
                let cell = index == 0 ? "th" : "td"
                html += "<tr>" + row.map { "<\(cell)>\(rendered($0))</\(cell)>" }.joined() + "</tr>"
            }
            html += "</table></div>"
        }
        html += "\n"
    }

    // MARK: Text

    private func rendered(_ inlines: [Markdown.Inline]) -> String {
        inlines.map { inline in
            switch inline {
            case .text(let text): Self.escaped(text)
            case .code(let text): "<code>\(Self.escaped(text))</code>"
            case .strong(let inner): "<strong>\(rendered(inner))</strong>"
            case .emphasis(let inner): "<em>\(rendered(inner))</em>"
            case .link(let label, let target):
                #"<a href="\#(Self.escaped(address(of: target)))">\#(rendered(label))</a>"#
            }
        }.joined()
    }

    /// Returns the address of a link. Links to files of other articles become links to their pages.
    private func address(of target: String) -> String {
        let parts = target.split(separator: "#", maxSplits: 1, omittingEmptySubsequences: false)
        guard let path = parts.first, path.hasSuffix(".md") else { return target }
        let topic = Manual.topic(of: path, in: topic)
        return base + (topic == "Holdfast" ? "./" : topic) + parts.dropFirst().map { "#\($0)" }.joined()
    }

    /// Returns the text without its markup.
    private static func plain(_ inlines: [Markdown.Inline]) -> String {
        inlines.map { inline in
            switch inline {
            case .text(let text), .code(let text): text
            case .strong(let inner), .emphasis(let inner), .link(let inner, _): plain(inner)
            }
        }.joined()
    }

    private static func escaped(_ text: String) -> String {
        var escaped = ""
        for character in text {
            switch character {
            case "&": escaped += "&amp;"
            case "<": escaped += "&lt;"
            case ">": escaped += "&gt;"
            case "\"": escaped += "&quot;"
            default: escaped.append(character)
            }
        }
        return escaped
    }
}
