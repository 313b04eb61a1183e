import Foundation
import Tidegate
import XCTest

/// What docs/swift.md shows, as it stands there.
final class PageTests: XCTestCase {
    func testBlocking() throws {
        let rules = [NamedRule(name: "login", limits: "5/m")]
        let limiter = try Limiter(source: .rules(rules: rules, url: nil)) // url: "redis://127.0.0.1:6379" shares the state

        let alice = Key.whole(bytes: Data("alice".utf8))
        let decision = try limiter.check(rules: ["login"], key: alice, options: Options())
        assert(decision.allowed && decision.remaining == 4)
        _ = try limiter.refund(receipt: decision.receipt)

        XCTAssertEqual(try limiter.peek(rules: ["login"], key: alice, options: Options()).remaining, 5)
    }

    func testAwaited() async throws {
        let limiter = try Limiter(source: .rules(rules: [NamedRule(name: "login", limits: "5/m")], url: nil))
        let alice = Key.parts(parts: [Data("acme".utf8), Data("alice".utf8)])
        let decision = try await limiter.asynchronous().check(
            rules: ["login"], key: alice, options: Options(cost: 2, deadlineMs: 50))
        XCTAssertEqual(decision.remaining, 3)
    }

    func testErrorsSayWhatToWrite() throws {
        let limiter = try Limiter(source: .rules(rules: [NamedRule(name: "login", limits: "5/m")], url: nil))
        XCTAssertThrowsError(
            try limiter.check(rules: ["logon"], key: .whole(bytes: Data("alice".utf8)), options: Options())
        ) { error in
            guard case TidegateError.UnknownRule(let message) = error else { return XCTFail("\(error)") }
            XCTAssertTrue(message.hasPrefix("unknown_rule: "), message)
        }
    }

    func testRequests() async throws {
        let document = """
            version = 1
            [rules]
            login = "5/m"
            [[routes]]
            path = "/login"
            methods = ["POST"]
            rules = "login"
            key = "ip"
            """
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        try document.write(to: folder.appendingPathComponent("tidegate.toml"), atomically: true, encoding: .utf8)
        XCTAssertTrue(FileManager.default.changeCurrentDirectoryPath(folder.path))

        let policy = try Policy(source: .file(path: "tidegate.toml"))
        let told = Told(peer: "203.0.113.7", headers: [HeaderLine(name: "authorization", value: Data("Bearer x".utf8))])
        let admission = try await policy.asynchronous().admit(method: "POST", path: "/login", told: told)
        if !admission.allowed {
            // answer with admission.status, admission.headers, admission.body
        }
        try admission.charge.settle(status: 200) // gives the charge back where the route's refund_status says so
        XCTAssertTrue(admission.allowed)
    }
}
