public import Bucketing
package import JSON

/// A page of users with their records, encoded by ``UserRecordLines``.
public struct UserRecordPage: Sendable {
    /// NDJSON, with a line for each user.
    public var lines: [UInt8]
    /// The number of lines.
    public var count: Int
    /// The user after whom the next page begins; `nil` if this page is the last.
    public var end: Identifier?
}

/// Encodes users with their stored records for a copy, as lines `{"user_id":…,"profile":…,"attributes":…}`. A record is
/// the ``JSON/Base64URL`` of its stored bytes, or `null`. Records are not decoded, and nothing is allocated per user,
/// because a copy may have millions of users.
///
/// A user may have two rows, one for each kind of record. The line is therefore written when the row of the next user
/// begins.
package struct UserRecordLines {
    private var writer = JSONWriter(capacity: 1 << 16)
    private var count = 0
    /// The user of the last row, whose line is not written yet; empty before the first row.
    private var userID: [UInt8] = []
    /// The stored profile of this user; empty if there is none.
    private var profile: [UInt8] = []
    /// The stored attributes of this user; empty if there are none.
    private var attributes: [UInt8] = []
    /// The last user whose line was written.
    private var written: [UInt8] = []

    package init() {}

    /// Begins a row. Rows of one user follow each other.
    package mutating func begin(_ id: UnsafeRawBufferPointer) {
        guard !userID.elementsEqual(id) else { return }
        writeLine()
        userID.append(contentsOf: id)
    }

    package mutating func add(profile bytes: UnsafeRawBufferPointer) {
        profile.replaceSubrange(profile.startIndex..., with: bytes)
    }

    package mutating func add(attributes bytes: UnsafeRawBufferPointer) {
        attributes.replaceSubrange(attributes.startIndex..., with: bytes)
    }

    /// Writes the line of the last row's user, if there is one.
    private mutating func writeLine() {
        guard !userID.isEmpty else { return }
        userID.withUnsafeBufferPointer { Self.append($0, profile, attributes, to: &writer) }
        count += 1
        swap(&userID, &written)
        userID.removeAll(keepingCapacity: true)
        profile.removeAll(keepingCapacity: true)
        attributes.removeAll(keepingCapacity: true)
    }

    /// Returns the lines of the rows that were added.
    ///
    /// - Parameter isLast: whether this is the last page. Otherwise the last user is left to the next page, which reads
    ///   all rows of this user.
    package consuming func page(isLast: Bool) -> UserRecordPage {
        if isLast { writeLine() }
        return UserRecordPage(
            lines: writer.finish(), count: count,
            end: isLast ? nil : Identifier(String(decoding: written, as: UTF8.self)))
    }

    /// Writes one line. Empty bytes stand for no record.
    private static func append(
        _ userID: UnsafeBufferPointer<UInt8>, _ profile: [UInt8], _ attributes: [UInt8], to writer: inout JSONWriter
    ) {
        writer.beginObject()
        writer.key("user_id")
        writer.string(utf8: userID)
        writer.member("profile", base64URL: profile.isEmpty ? nil : profile)
        writer.member("attributes", base64URL: attributes.isEmpty ? nil : attributes)
        writer.endObject()
        writer.endLine()
    }

    /// Writes one line.
    package static func append(
        _ userID: Identifier, _ profile: ProfileRecord?, _ attributes: AttributeRecord?, to writer: inout JSONWriter
    ) {
        var id = userID.string
        id.withUTF8 { append($0, profile?.bytes ?? [], attributes?.bytes ?? [], to: &writer) }
    }
}
