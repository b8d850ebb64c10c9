import APITestSupport
import Foundation
import JSON
import Testing

/// The console's files, as a browser fetches them.
@Suite struct ConsoleTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    /// The files that `Console/Page` has.
    private static let names: [String] = {
        let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent().appendingPathComponent(
                "Sources/HoldfastAPI/Console/Page")
        return (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? []
    }()

    @Test func `Every file of the page is served with its type, an entity tag and a strict policy`() throws {
        #expect(Self.names.count > 10)
        let types = [
            "html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8",
            "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml",
        ]
        var bytes = 0
        for name in Self.names {
            let response = try server.request("GET", "/console/\(name)")
            #expect(response.status == 200, "\(name)")
            #expect(response.field("content-type") == types[String(name.split(separator: ".").last ?? "")], "\(name)")
            let policy = try #require(response.field("content-security-policy"))
            #expect(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"))
            #expect(!policy.contains("unsafe"))
            #expect(response.field("cache-control") == "no-cache")
            #expect(response.field("x-content-type-options") == "nosniff")
            let tag = try #require(response.field("etag"))
            #expect(try server.request("GET", "/console/\(name)", fields: ["If-None-Match: \(tag)"]).status == 304)
            bytes += response.text.utf8.count
        }
        // All screens together. What the first one loads is bounded in the browser test, compressed.
        #expect(bytes < 360 * 1024)
    }

    @Test func `Files are compressed for clients that take gzip, with an entity tag of their own`() throws {
        func tag(_ accepted: String) throws -> (encoding: String?, tag: String?) {
            let response = try server.request("HEAD", "/console/app.js", fields: ["Accept-Encoding: \(accepted)"])
            #expect(response.field("vary") == "Accept-Encoding")
            return (response.field("content-encoding"), response.field("etag"))
        }
        let plain = try #require(try server.request("HEAD", "/console/app.js").field("etag"))
        let compressed = try #require(try tag("gzip").tag)
        #expect(compressed != plain)
        for accepted in ["deflate, gzip;q=0.5, br", "GZIP", "gzip; q=1.0"] {
            #expect(try tag(accepted) == ("gzip", compressed), "\(accepted)")
        }
        for accepted in ["", "br", "gzip;q=0", "gzip; q=0.000", "x-gzipped"] {
            #expect(try tag(accepted) == (nil, plain), "\(accepted)")
        }
        let known = try server.request(
            "GET", "/console/app.js", fields: ["Accept-Encoding: gzip", "If-None-Match: \(compressed)"])
        #expect(known.status == 304)
        let unlike = try server.request("GET", "/console/app.js", fields: ["If-None-Match: \(compressed)"])
        #expect(unlike.status == 200)
    }

    @Test func `The page has no inline script, style or handler, and loads nothing from elsewhere`() throws {
        let page = try server.request("GET", "/console/").text
        #expect(page.hasPrefix("<!doctype html>"))
        #expect(page == (try server.request("GET", "/console/index.html").text))
        #expect(page.matches(of: #/<script(?![^>]* src=)/#).isEmpty)
        #expect(page.matches(of: #/<style|\bstyle=|\bon[a-z]+=|https?:/#).isEmpty)
        for name in Self.names where name.hasSuffix(".js") {
            let script = try server.request("GET", "/console/\(name)").text
            #expect(
                script.matches(of: #/innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(/#).isEmpty, "\(name)"
            )
        }
    }

    @Test func `The modules that a script imports are served`() throws {
        for name in Self.names where name.hasSuffix(".js") {
            let script = try server.request("GET", "/console/\(name)").text
            for match in script.matches(of: #/"\./([\w.-]+\.js)"/#) {
                #expect(Self.names.contains(String(match.output.1)), "\(name)")
            }
        }
    }

    @Test func `A browser at the root is shown the console, and other clients find nothing there`() throws {
        let browser = try server.request("GET", "/", fields: ["Accept: text/html,application/xhtml+xml;q=0.9"])
        #expect(browser.status == 302)
        #expect(browser.field("location") == "console/")
        #expect(browser.field("vary") == "Accept")
        #expect(try server.request("GET", "/console").field("location") == "console/")
        let curl = try server.request("GET", "/", fields: ["Accept: */*"])
        #expect(curl.status == 404)
        #expect(curl["detail"] == "no resource has this path; /openapi.json lists all")
    }

    @Test func `The files need no token, and are only read`() throws {
        let guarded = try startTestServer(tokens: "read reader 0123456789abcdef\n")
        #expect(try guarded.request("GET", "/console/app.js").status == 200)
        let head = try guarded.request("HEAD", "/console/app.js")
        #expect(head.status == 200)
        #expect(head.text.isEmpty)
        #expect(try guarded.request("POST", "/console/app.js", "{}").status == 405)
        #expect(try guarded.request("GET", "/console/absent.js").status == 404)
        #expect(try guarded.request("GET", "/console/..%2Fapp.js").status == 404)
    }
}
