import CHTTPClient
import Glibc

/// One request by libcurl, and its complete response.
struct HTTPExchange {
    let status: Int
    let body: [UInt8]

    /// Sends the request, and blocks until the response is complete.
    ///
    /// - Parameters:
    ///   - seconds: the time limit for the whole exchange.
    ///   - server: the server's name in errors.
    /// - Throws: ``Failure`` if there is no complete response.
    init(
        _ method: String, _ url: String, fields: [String], body: [UInt8]? = nil, seconds: Int, server: String
    ) throws(Failure) {
        var pointers: [UnsafePointer<CChar>?] = fields.map { UnsafePointer(strdup($0)) } + [nil]
        defer { for pointer in pointers { free(UnsafeMutablePointer(mutating: pointer)) } }
        let response =
            if let body {
                http_client_send(method, url, &pointers, body, body.count, seconds)
            } else {
                http_client_send(method, url, &pointers, nil, 0, seconds)
            }
        defer { free(response.body) }
        guard response.status != 0 else {
            let reason = withUnsafeBytes(of: response.error) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
            throw Failure("\(server) does not respond: \(reason)")
        }
        status = response.status
        self.body = Array(UnsafeBufferPointer(start: response.body, count: response.length))
    }
}
