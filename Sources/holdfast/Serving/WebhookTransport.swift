import CHTTPClient
import FoundationEssentials
import Glibc
import HoldfastAPI

/// Sends webhooks with libcurl, and reads their secrets.
enum WebhookTransport {
    /// Makes a request by libcurl and waits for its response.
    static func send(_ request: WebhookRequest) -> WebhookResponse {
        // An empty `Expect` prevents curl from waiting for `100 Continue` before it sends a large body.
        let all = request.fields + ["Expect:", "User-Agent: Holdfast/\(Holdfast.version)"]
        var fields: [UnsafePointer<CChar>?] = all.map { UnsafePointer(strdup($0)) } + [nil]
        defer { for field in fields { free(UnsafeMutablePointer(mutating: field)) } }
        // `http_deliver` requires a buffer of this size.
        var error = [CChar](repeating: 0, count: 256)
        let status = http_deliver(
            request.url, &fields, request.body, request.body.count, Int(request.seconds * 1_000),
            request.allowsPrivateAddresses ? 0 : 1, &error)
        // The status is 0 if there was no response.
        guard status == 0 else { return WebhookResponse(status: Int(status)) }
        let reason = String(decoding: error.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        return WebhookResponse(status: 0, failure: "the receiver does not respond: \(reason)")
    }

    /// Reads the secrets of a file, one per line: the current secret, and optionally the former one. The permissions of
    /// the file are not checked, because for mounted secrets the directory determines who may read it.
    static func readSecrets(_ name: String, in directory: String) throws(Failure) -> [String] {
        let bytes: [UInt8]
        do throws(Failure) {
            bytes = try OpenFile(path: "\(directory)/\(name)").readToEnd()
        } catch {
            throw Failure("the secret '\(name)' cannot be read: \(error)")
        }
        let lines = String(decoding: bytes, as: UTF8.self).split(whereSeparator: \.isNewline).map(String.init)
        guard (1...2).contains(lines.count) else {
            throw Failure("the secret '\(name)' must have one line, or two while it is replaced; it has \(lines.count)")
        }
        return lines
    }
}
