package shop;

import jakarta.servlet.http.Cookie;
import jakarta.servlet.http.HttpServletRequest;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.HexFormat;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.springframework.http.ResponseCookie;
import org.springframework.web.util.WebUtils;

/** Cookies that say who a user is, signed. */
class Sessions {
    private static final String NAME = "session";

    private final SecretKeySpec secret;

    Sessions(String secret) {
        this.secret = new SecretKeySpec(secret.getBytes(StandardCharsets.UTF_8), "HmacSHA256");
    }

    ResponseCookie cookie(String user) {
        return ResponseCookie.from(NAME, user + "." + signature(user)).httpOnly(true).sameSite("Lax").path("/").build();
    }

    /** Null for nobody. */
    String user(HttpServletRequest request) {
        Cookie cookie = WebUtils.getCookie(request, NAME);
        if (cookie == null) return null;
        int dot = cookie.getValue().lastIndexOf('.');
        if (dot < 1) return null;
        String user = cookie.getValue().substring(0, dot);
        byte[] given = cookie.getValue().substring(dot + 1).getBytes(StandardCharsets.UTF_8);
        return MessageDigest.isEqual(given, signature(user).getBytes(StandardCharsets.UTF_8)) ? user : null;
    }

    private String signature(String user) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(secret);
            return HexFormat.of().formatHex(mac.doFinal(user.getBytes(StandardCharsets.UTF_8)));
        } catch (GeneralSecurityException missing) {
            throw new IllegalStateException("every Java has HmacSHA256", missing);
        }
    }
}
