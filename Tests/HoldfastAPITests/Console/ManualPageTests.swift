import APITestSupport
import Foundation
import JSON
import Testing

@testable import HoldfastAPI

/// The manual as a browser shows it.
@Suite struct ManualPageTests {
    // MARK: Markdown

    @Test(arguments: Manual.all.map(\.topic))
    func `An article is written in the Markdown that its page can show`(topic: String) throws {
        let article = try #require(Manual.article(topic))
        #expect(throws: Never.self) { try Markdown(article.markdown) }
    }

    @Test func `Blocks become elements`() throws {
        let text = """
            # A `b` & c

            One *two*
            **three `*`** [four](Flags.md#an-id).

            - first
              goes on

              ```sh
              a < b
              ```
            - second
              1. inner
              2. next

            | a | b |
            | --- | --- |
            | `x \\| y` | 5 < 6 |

            > Warning: no.

            ![A picture](console-user.png)

            """
        let html = try ManualPage.article(Manual.Article(topic: "Profiles", markdown: text))
        let main = try #require(html.firstMatch(of: #/<main>\n([\s\S]*?)\n*<\/main>/#)?.output.1)
        let expected = """
            <h1 id="a-b--c">A <code>b</code> &amp; c</h1>
            <p>One <em>two</em> <strong>three <code>*</code></strong> <a href="Flags#an-id">four</a>.</p>
            <ul><li>first goes on<pre tabindex="0"><code>a &lt; b</code></pre>
            </li><li>second<ol><li>inner</li><li>next</li></ol>
            </li></ul>
            <div class="table" tabindex="0"><table><tr><th>a</th><th>b</th></tr><tr><td><code>x | y</code></td><td>5 &lt; 6</td></tr></table></div>
            <blockquote><p>Warning: no.</p></blockquote>
            <p><img src="console-user.png" alt="A picture"></p>
            """
        #expect(main == expected)
    }

    @Test(arguments: [
        ("* star", "'* star'"), ("a\n---", "'---'"), ("a  \nb", "'a  '"), ("<b>x</b>", "'<b>x</b>'"),
        ("a <br> b", "'<br> b' outside code"), ("##### five", "'##### five'"), ("#no space", "'#no space'"),
        ("    code", "'    code'"), ("[a][b]", "'[a][b]', which is no link"), ("*open", "'*' without its end"),
        ("`open", "a backquote without its end"), ("| a |\nb", "a table without a line of dashes below its header"),
        ("| a | b |\n| --- | --- |\n| c |", "1 cells in a table with 2 columns"),
        ("```\nx", "a code block without an end"),
        ("![a](b.gif)", "'![a](b.gif)'"), ("a \\* b", "'\\* b' outside code"), ("@Metadata {}", "'@Metadata {}'"),
        ("~~gone~~", "'~~gone~~' outside code"), ("[a](b c)", "a link to 'b c'"),
    ])
    func `Anything else is refused, and the line is named`(text: String, found: String) throws {
        let error = try #require(throws: Markdown.Unsupported.self) { try Markdown("First.\n\n\(text)") }
        #expect(error.found == found)
        #expect((3...5).contains(error.line))
    }

    // MARK: Served

    @Test func `Every link of every page leads to a page or picture, and to a heading in it`() throws {
        let server = try startTestServer()
        var pages: [String: Set<String>] = [:]
        var links: [(from: String, to: String)] = [("", "/manual/")]
        while let (from, link) = links.popLast() {
            let parts = link.split(separator: "#", maxSplits: 1).map(String.init)
            if pages[parts[0]] == nil {
                let response = try server.request("GET", parts[0])
                try #require(response.status == 200, "\(link) in \(from)")
                pages[parts[0]] = Set(Self.values(of: "id", in: response.text))
                let type = response.field("content-type")
                #expect(
                    type
                        == (parts[0].hasSuffix(".png")
                            ? "image/png"
                            : parts[0].hasSuffix(".css")
                                ? "text/css; charset=utf-8" : "text/html; charset=utf-8"))
                guard type?.hasPrefix("text/html") == true else { continue }
                let folder = parts[0].prefix(through: parts[0].lastIndex(of: "/") ?? parts[0].startIndex)
                for target in ["href", "src", "action"].flatMap({ Self.values(of: $0, in: response.text) }) {
                    if target.hasPrefix("https://") { continue }
                    if target.hasPrefix("#") {
                        links.append((parts[0], parts[0] + target))
                    } else if target.hasPrefix("../") {
                        links.append((parts[0], "/manual/" + String(target.dropFirst(3)).withoutDot))
                    } else {
                        links.append((parts[0], folder + target.withoutDot))
                    }
                }
            }
            if parts.count > 1 {
                #expect(pages[parts[0]]?.contains(parts[1]) == true, "\(link) in \(from)")
            }
        }
        let topics = Manual.articles.map(\.topic)
        #expect(topics.count > 50)
        for topic in topics { #expect(pages["/manual/\(topic)"] != nil, "\(topic) is reached from no page") }
        server.stop()
    }

    /// Regular expressions would take seconds for the whole manual.
    private static func values(of attribute: String, in html: String) -> [String] {
        html.components(separatedBy: " \(attribute)=\"").dropFirst().map { $0.components(separatedBy: "\"")[0] }
    }

    @Test func `Each error leads to a heading of the manual that exists`() throws {
        let server = try startTestServer()
        var headings: [String: [String]] = [:]
        for heading in ManualLink.headings {
            let parts = heading.split(separator: "#").map(String.init)
            try #require(parts.count == 2, "\(heading)")
            headings[parts[0], default: []].append(parts[1])
        }
        for (topic, ids) in headings {
            let page = try server.request("GET", "/manual/\(topic)")
            #expect(page.status == 200, "\(topic)")
            for id in ids { #expect(page.text.contains(#" id="\#(id)""#), "\(topic)#\(id)") }
        }
        server.stop()
    }

    @Test(arguments: [
        ("GET", "/v1/profiles/nobody", "", "Profiles#save-and-look-up"),
        ("PUT", "/v1/profiles/ann/experiments/chekout", #"{"variation_id":"a"}"#, "Profiles#overrides"),
        ("PUT", "/v1/experiments/checkout", #"{"traffic":200}"#, "Experiments#traffic-and-weights"),
        ("PUT", "/v1/experiments/checkout", #"{"ramp":7}"#, "Ramps#members-of-a-ramp"),
        ("PUT", "/v1/experiments/checkout", #"{"nme":"x"}"#, "Experiments#members-of-an-experiment"),
        ("GET", "/v1/experiments/nothing/results", "", "EventsAndResults#results"),
        ("POST", "/v1/assign", #"{"user_id":7}"#, "Experiments#create-and-assign"),
        ("GET", "/v1/profilez/ann", "", "API#routes"), ("PUT", "/v1/bucket", "", "API#routes"),
        ("POST", "/ups/lookup", "{}", "UserProfileService#look-up-and-save"),
        ("POST", "/v1/experiments/checkout/reopen", "{}", "Experiments#conclude"),
        ("PUT", "/v1/experiments/checkout", #"{"status":"draft"}"#, "Experiments#pause-archive-and-restore"),
        ("PUT", "/v1/experiments/checkout", #"{"variations":["a"]}"#, "Experiments#changes-that-move-users"),
        ("PUT", "/v1/experiments/checkout", #"{"id":"7"}"#, "Experiments#members-of-an-experiment"),
        (
            "PUT", "/v1/experiments/other", #"{"id":"7001","variations":["a"]}"#,
            "Experiments#an-id-belongs-to-one-project"
        ),
        ("FETCH", "/v1/experiments/checkout", "", "API#rules"),
    ])
    func `An error says where the manual explains it`(
        method: String, path: String, body: String, heading: String
    ) throws {
        let server = try startTestServer()
        let created = try server.request("PUT", "/v1/experiments/checkout", #"{"id":"77","variations":["a","b"]}"#)
        #expect(created.status == 201)
        // With this id both variations have some of them.
        for user in 0..<20 {
            let ask = #"{"user_id":"u\#(user)","experiment":"checkout"}"#
            #expect(try server.request("POST", "/v1/assign", ask).status == 200)
        }
        #expect(try server.request("PUT", "/v1/projects/stage", "{}").status == 201)
        let staged = try server.request(
            "PUT", "/v1/experiments/checkout", #"{"id":"7001","variations":["a","b"]}"#,
            fields: ["X-Optimizely-SDK-Key: stage"])
        #expect(staged.status == 201)
        let refusal = try server.request(method, path, body)
        #expect(refusal.status >= 400 && refusal["help"] == .string("/manual/\(heading)"), "\(refusal.text)")
        server.stop()
    }

    @Test func `Pages run no script, and load nothing from elsewhere`() throws {
        let server = try startTestServer()
        for path in ["/manual/", "/manual/Flags", "/manual/Client/Flags", "/manual/?q=kill", "/manual/style.css"] {
            let response = try server.request("GET", path)
            #expect(response.status == 200, "\(path)")
            let policy = try #require(response.field("content-security-policy"))
            #expect(policy.hasPrefix("default-src 'none'; style-src 'self'; img-src 'self'"))
            #expect(!policy.contains("script") && !policy.contains("unsafe"))
            #expect(response.text.firstMatch(of: #/<script|<style| style=| on[a-z]+=/#) == nil)
            let tag = try #require(response.field("etag"))
            #expect(try server.request("GET", path, fields: ["If-None-Match: \(tag)"]).status == 304)
        }
        #expect(try server.request("GET", "/manual").field("location") == "manual/")
        server.stop()
    }

    @Test func `A search finds each word of the glossary`() throws {
        let concepts = try #require(Manual.article("Concepts"))
        let glossary = try #require(concepts.sections.first { $0.heading == "Glossary" })
        let words = glossary.lines.filter { $0.hasPrefix("| ") }.dropFirst(2).flatMap { row in
            row.dropFirst(2).prefix { $0 != "|" }.split(whereSeparator: { ",()".contains($0) })
        }
        #expect(words.count > 60)
        for word in words where word.contains(where: \.isLetter) {
            let hits = Manual.search(String(word))
            let first = try #require(hits.first, "\(word)")
            #expect(first.article.topic == "Concepts" && first.line.lowercased().contains(word.lowercased()), "\(word)")
        }
    }

    @Test func `A word is not found within another one, but at the beginning of it`() {
        #expect(Manual.search("UPS").first?.line.hasPrefix("| User Profile Service (UPS) |") == true)
        #expect(Manual.search("audience").first?.article.topic == "Concepts")
        #expect(Manual.search("roups").isEmpty && !Manual.search("exposu").isEmpty)
    }

    @Test func `A search shows sections with links, and what was searched as text`() throws {
        let server = try startTestServer()
        let found = try server.request("GET", "/manual/?q=pgbouncer").text
        #expect(found.contains(#"<a href="RunOnPostgreSQL#poolers">"#))
        let nothing = try server.request("GET", "/manual/?q=%3Cb%3E%22x%22").text
        #expect(nothing.contains("Search: &lt;b&gt;&quot;x&quot;") && nothing.contains("No section of the manual"))
        let unknown = try server.request("GET", "/manual/Experimets")
        #expect(unknown.status == 404)
        #expect(unknown["detail"] == "the manual has no article 'Experimets'; did you mean 'Experiments'?")
        server.stop()
    }
}

extension String {
    /// A relative address without the dot of `./`.
    fileprivate var withoutDot: String { hasPrefix("./") ? String(dropFirst(2)) : self }
}
