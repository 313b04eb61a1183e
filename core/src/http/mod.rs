//! HTTP, once for every framework and language: which rules a request has, who sent it, and what it is answered.
