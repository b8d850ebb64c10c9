import HTTPServer

/// A file or page for browsers that is part of the program, such as a page of the manual or of the console.
struct StaticFile: Sendable {
    /// A representation of a file. Each has its own entity tag, so that caches keep them apart.
    private struct Form: Sendable {
        let bytes: [UInt8]
        let entityTag: EntityTag

        init(_ bytes: [UInt8]) {
            self.bytes = bytes
            entityTag = bytes.withUnsafeBytes { EntityTag(hashing: $0) }
        }
    }

    private let contentType: StaticString
    private let plain: Form
    /// The compressed representation; `nil` if it would not be shorter.
    private let compressed: Form?

    init(_ contentType: StaticString, _ bytes: [UInt8]) {
        self.contentType = contentType
        plain = Form(bytes)
        compressed = Gzip.compress(bytes, .small).map { Form($0) }
    }

    /// Returns the file, compressed if the browser accepts that.
    ///
    /// - Parameters:
    ///   - accepted: the `Accept-Encoding` of the request.
    ///   - policy: the content security policy of the page.
    func response(accepting accepted: String?, policy: String) -> Response {
        let compressed = ContentCoding.acceptsGzip(accepted ?? "") ? compressed : nil
        let form = compressed ?? plain
        // The entity tag covers the policy, because after a 304 a browser would keep the former policy.
        let policyTag = Array(policy.utf8).withUnsafeBytes { EntityTag(hashing: $0) }
        let tag = EntityTag(form.entityTag.value ^ policyTag.value)
        var response = Response(.ok, contentType: contentType, entityTag: tag, body: .bytes(form.bytes))
        response.fields = [
            // A browser revalidates each time, and gets a 304 until the program changes.
            ("Cache-Control", "no-cache"), ("Vary", "Accept-Encoding"), ("Content-Security-Policy", policy),
            ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Opener-Policy", "same-origin"), ("Cross-Origin-Resource-Policy", "same-origin"),
        ]
        if compressed != nil { response.fields.append(("Content-Encoding", "gzip")) }
        return response
    }
}
