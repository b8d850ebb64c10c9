import HTTPServer
import Storage

/// Who makes a call, and by which request.
struct Caller {
    /// The name of the token; `nil` when the server asks for none.
    let name: String?
    let requestID: RequestID

    /// As the audit log names it.
    var author: Author {
        Author(name: name ?? Author.anonymousName, requestID: requestID.description)
    }
}
