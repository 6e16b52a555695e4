module certwright.test/postquantum

go 1.27.0
